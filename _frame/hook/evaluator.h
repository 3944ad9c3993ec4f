// PEP 523: the frame evaluator, installed only while some thread has candidates.
#pragma once

namespace dyncomp {

// Counts the scopes with candidates, in all threads; the first installs the evaluator, the last removes it.
void evaluator_acquire();
void evaluator_release();
// Whether the interpreter calls our evaluator now (first in line).
bool evaluator_installed();
// In between, evaluators above ours do not get to see the compiler's frames (`Thread::compiling`) and those of generated code.
// False: there is none, nothing was done and nothing is to be released.
bool evaluator_shield_acquire();
void evaluator_shield_release();

}  // namespace dyncomp
