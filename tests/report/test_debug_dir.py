import torch

import dyncomp


def test_every_stage_leaves_a_file(tmp_path):
    def f(x):
        return torch.softmax(x * 2, -1)

    with torch.no_grad():
        dyncomp.optimize(f, options={"debug_dir": str(tmp_path)})(torch.randn(8, 64))
    (folder,) = tmp_path.iterdir()
    names = " ".join(sorted(p.name for p in folder.iterdir()))
    for stage in ("user_bytecode", "guards", "fx_graph", "aten_graph", "loops", "kernels", "plan"):
        assert stage in names, names
    assert (folder / next(p.name for p in folder.iterdir() if "fx_graph" in p.name)).read_text().count(
        "def forward"
    ) == 1
