#!/usr/bin/env bash
# device_only.sh SOURCE BUILD: what GB_DEVICE_ONLY builds calls no library but CUDA's and C's, and nothing of ours that is not there.
set -eu
cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGB_DEVICE_ONLY=ON >/dev/null
cmake --build "$2" --target gb_cuda_host_gpu gb_check >/dev/null
archives="$2/libgb_base.a $2/libgb_flow.a $2/libgb_model.a $2/libgb_forward.a $2/cuda/libgb_cuda_host_gpu.a"
calls=$(nm --undefined-only $archives 2>/dev/null | awk '$1 == "U" {print $2}' | sort -u)
foreign=$(printf '%s\n' "$calls" | grep -E '^(json_|pcre2_|utf8proc_|lua|uv_|msgpack_)' || true)
[ -z "$foreign" ] || { printf 'calls of libraries that a machine with a GPU may lack:\n%s\n' "$foreign"; exit 1; }
# Launchers (gb_k_) and their like come from nvcc's objects.
missing=$(comm -23 <(printf '%s\n' "$calls" | grep '^gb_' | grep -v '^gb_k_') <(nm --defined-only $archives 2>/dev/null | awk '{print $3}' | sort -u))
[ -z "$missing" ] || { printf 'nobody has these: add the file to the gb_model of GB_DEVICE_ONLY, or to cmake/no_checkpoints.c:\n%s\n' "$missing"; exit 1; }
echo "no call of another library"
