// Odd functions that level off, from tables: one polynomial for each quarter of a binade of |x|, its coefficients looked up
// by lane. Half the work of what splits the range in two and takes an exponential, where the machine looks up in registers
// (AVX-512); there all widths compute by the same tables, so that a value does not depend on the loop it stands in.
#pragma once
#include "vec_poly.h"

#ifdef __AVX512F__
constexpr bool HAS_TABLES = true;
#else
constexpr bool HAS_TABLES = false;
#endif

struct alignas(64) table_row { float at[32]; };

#if defined(__AVX512VL__)
#ifdef __clang__
AI vec<float, 16> pick_of_32(const float *t, vec<int, 16> i) {
  return __builtin_ia32_vpermi2varps512(load_raw<vec<float, 16>>(t), i, load_raw<vec<float, 16>>(t + 16));
}
AI vec<float, 8> pick_of_16(const float *t, vec<int, 8> i) {
  return __builtin_ia32_vpermi2varps256(load_raw<vec<float, 8>>(t), i, load_raw<vec<float, 8>>(t + 8));
}
#else
AI vec<float, 16> pick_of_32(const float *t, vec<int, 16> i) {
  return __builtin_ia32_vpermt2varps512_mask(i, load_raw<vec<float, 16>>(t), load_raw<vec<float, 16>>(t + 16), -1);
}
AI vec<float, 8> pick_of_16(const float *t, vec<int, 8> i) {
  return __builtin_ia32_vpermt2varps256_mask(i, load_raw<vec<float, 8>>(t), load_raw<vec<float, 8>>(t + 8), -1);
}
#endif
#endif

// at[i] in each lane, i from 0 to 31.
template <class V> AI V look_up(const table_row &row, sint<V> i) {
#if defined(__AVX512VL__)
  if constexpr (lanes<V> == 16) return pick_of_32(row.at, bits<vec<int, 16>>(i));
  else if constexpr (lanes<V> == 8) {
    const vec<int, 8> place = bits<vec<int, 8>>(i);
    return sel(place > 15, pick_of_16(row.at + 16, place), pick_of_16(row.at, place));
  } else
#endif
  {
    V r{};
    for (int l = 0; l < lanes<V>; l++) set_lane(r, l, row.at[lane(i, l)]);
    return r;
  }
}

// Row 0: the centre c of each part; then the coefficients of (|x| - c)^6 down to the constant. Parts: below 1/4, then the
// quarters of the binades up to `end`, from where on the value is the last part's. In part 0 the table holds f(x) - x.
template <class V> AI V by_table(V x, float end, const table_row (&rows)[8]) {
  typedef sint<V> I;
  const V a = machine_min(cst<V>(end), v_abs(x));  // nan stays
  const I part = (bits<I>(a) >> 21) - splat<I>(499);
  const I i = sel(part > I{}, part, I{}) & splat<I>(31);
  const V t = a - look_up<V>(rows[0], i);
  V p = look_up<V>(rows[1], i);
#pragma GCC unroll 8
  for (int k = 2; k < 7; k++) p = fma_(p, t, look_up<V>(rows[k], i));
  const V base = sel(part > I{}, look_up<V>(rows[7], i), a);
  return v_copysign(fma_(p, t, base), x);
}

// Least-squares fits with weights moved towards the greatest relative error (Lawson's method), rounded one coefficient
// after the other; a centre is a float near the middle at which the function is almost a float, so that results are
// rounded rightly but for a few.
constexpr table_row ERF[8] = {
  {{0.0f, 0.28125885f, 0.34375966f, 0.41575f, 0.4687444f, 0.5625105f, 0.6874769f, 0.82839584f, 0.9565f, 1.1590834f,
    1.3809583f, 1.637375f, 1.8336667f, 2.2984166f, 2.7499142f, 3.1780834f, 3.8325f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f,
    4.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f}},
  {{-0.018992314f, -0.45512074f, 0.16019969f, -1.0605751f, -0.12484682f, -0.051335745f, -0.038503814f, -0.038263824f,
    0.055500224f, 0.016844485f, 0.022079516f, 0.014470301f, 0.0040217815f, -0.0027750346f, -0.0016687813f, -0.0002763035f,
    -2.0782327e-05f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{0.11789946f, -0.038829718f, 0.1397918f, -0.014491295f, 0.03097785f, -0.013870235f, -0.04650574f, -0.06518742f,
    -0.06349098f, -0.05768538f, -0.029788738f, -0.0011945494f, 0.010338554f, 0.009778545f, 0.0028266655f, 0.00045102462f,
    9.882188e-06f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{-0.0006123398f, 0.13939664f, 0.15851428f, 0.17531508f, 0.18133482f, 0.18251552f, 0.16561787f, 0.12771583f, 0.08425644f,
    0.017810766f, -0.031399935f, -0.049828082f, -0.044496264f, -0.016623508f, -0.0032588409f, -0.00042661838f,
    -7.5823436e-06f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{-0.3760945f, -0.29240128f, -0.25532237f, -0.20699355f, -0.16926782f, -0.100626186f, -0.01281326f, 0.07054102f,
    0.12499764f, 0.16556309f, 0.15719901f, 0.11237709f, 0.07461642f, 0.018271731f, 0.0027593279f, 0.00029674347f,
    4.5067113e-06f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{-5.050227e-07f, -0.29322833f, -0.34465852f, -0.3946576f, -0.42458776f, -0.46255895f, -0.48356512f, -0.4706119f,
    -0.4323221f, -0.3412764f, -0.23142813f, -0.12654965f, -0.07170225f, -0.013171074f, -0.0016129795f, -0.0001472301f,
    -1.8109928e-06f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{0.12837917f, 1.0425563f, 1.002615f, 0.9492664f, 0.9057979f, 0.82231164f, 0.7033911f, 0.5681002f, 0.45198333f,
    0.29443648f, 0.16758516f, 0.07728815f, 0.03910319f, 0.005730592f, 0.00058657106f, 4.6342117e-05f, 4.7119332e-07f, 0.0f,
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{0.0f, 0.30919296f, 0.37313887f, 0.44344038f, 0.4926084f, 0.5736831f, 0.6690684f, 0.75861365f, 0.823847f, 0.8988266f,
    0.94917685f, 0.97941977f, 0.99049115f, 0.9988478f, 0.9998993f, 0.999993f, 0.99999994f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f,
    1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f}},
};
constexpr table_row TANH[8] = {
  {{0.0f, 0.2870625f, 0.34375155f, 0.41457292f, 0.47715625f, 0.5831042f, 0.6874874f, 0.81914586f, 0.9213125f, 1.1650833f,
    1.3630416f, 1.6249857f, 1.875007f, 2.2809167f, 2.6935f, 3.1916666f, 3.7500856f, 4.588333f, 5.4543333f, 6.6171665f,
    7.3448334f, 12.0f, 12.0f, 12.0f, 12.0f, 12.0f, 12.0f, 12.0f, 12.0f, 12.0f, 12.0f, 12.0f}},
  {{-0.036977373f, -2.9875064f, -0.20127638f, 2.2405105f, -0.80855674f, -0.02383532f, 0.00046623577f, -0.02263654f,
    -0.059841853f, 0.0189968f, 0.010977157f, 0.0041210004f, 0.00062093476f, -0.0007172369f, -0.0005461207f,
    -0.00024437867f, -9.577735e-05f, -2.2484068e-05f, -3.0925794e-06f, -4.1553488e-07f, -5.9129604e-08f, -6.454223e-10f,
    -6.454223e-10f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{0.14308447f, -0.093741514f, -0.0365677f, 0.12843616f, -0.05068806f, -0.04667294f, -0.05824699f, -0.066549845f,
    -0.047327608f, -0.027494041f, -0.010284278f, 0.0013632786f, 0.0046362462f, 0.0038450225f, 0.002099294f, 0.00085568614f,
    0.00029255915f, 5.6262917e-05f, 1.0119429e-05f, 9.621765e-07f, 2.4385042e-07f, -5.626902e-09f, -5.626902e-09f, 0.0f,
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{-0.0011837578f, 0.153372f, 0.16429996f, 0.16955483f, 0.16808888f, 0.1487251f, 0.1194375f, 0.07785698f, 0.04777934f,
    -0.0027131785f, -0.02076094f, -0.025218f, -0.020863129f, -0.011718382f, -0.005666795f, -0.002193665f, -0.000730768f,
    -0.00013666211f, -2.4451636e-05f, -2.362845e-06f, -5.742097e-07f, -1.9473735e-08f, -1.9473735e-08f, 0.0f, 0.0f, 0.0f,
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{-0.3332702f, -0.2351871f, -0.19930288f, -0.15187368f, -0.10934969f, -0.04187431f, 0.014364307f, 0.066365f, 0.09181251f,
    0.111006446f, 0.1005783f, 0.07516597f, 0.05180044f, 0.02560132f, 0.011761969f, 0.00444472f, 0.0014680413f,
    0.00027547954f, 4.874862e-05f, 4.768955e-06f, 1.1111655e-06f, -3.0781784e-08f, -3.0781784e-08f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{-1.0973024e-06f, -0.25761107f, -0.29461613f, -0.33195165f, -0.3564568f, -0.38028267f, -0.3842669f, -0.36759785f,
    -0.34304136f, -0.2658783f, -0.2023475f, -0.13300727f, -0.08566993f, -0.040066943f, -0.017971119f, -0.006712414f,
    -0.002207073f, -0.00041358412f, -7.31863e-05f, -7.153629e-06f, -1.6666462e-06f, -2.1613069e-08f, -2.1613069e-08f, 0.0f,
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}},
  {{0.0f, 0.92191947f, 0.89055645f, 0.8460626f, 0.8028966f, 0.72446114f, 0.64434826f, 0.54490846f, 0.472172f, 0.32318184f,
    0.23070146f, 0.14373817f, 0.08979644f, 0.04091263f, 0.018136365f, 0.0067351516f, 0.002209515f, 0.00041361531f,
    7.31943e-05f, 7.1525164e-06f, 1.6688543e-06f, -4.5176476e-09f, -4.5176476e-09f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.0f, 0.0f, 0.0f}},
  {{0.0f, 0.2794289f, 0.3308225f, 0.3923486f, 0.44396326f, 0.52491796f, 0.59636545f, 0.6746047f, 0.72651774f, 0.8226896f,
    0.87709665f, 0.92534417f, 0.9540459f, 0.97933006f, 0.9908903f, 0.99662673f, 0.99889463f, 0.9997932f, 0.9999634f,
    0.9999964f, 0.99999917f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f}},
};
