"""--policy NAME: the four configurations of the ablation load, decide and answer the same tokens."""

import unittest

from harness import MODEL, Server, gimbal, main

HOOKS = ("order_queue", "score_expert", "select_engine")
PROMPT = {"prompt": "The quick brown fox jumps over the lazy dog.", "request_id": "r", "sampling": {"max_tokens": 12, "temperature": 0}}


class Bundles(unittest.TestCase):
    def decide(self, *flags):
        """The policies that decide after a request, by hook, and the text of the answer."""
        with Server("-dp", "2", *flags) as server:
            text = server.rpc("generate", PROMPT)[-1]["text"]
            policies = server.rpc("policy_list")[-1]["policies"]
            active = {hook: policy["name"] for policy in policies for hook in policy.get("active", [])}
            calls = {policy["name"]: policy["calls"] for policy in policies}
            faults = sum(policy["faults"] for policy in policies)
        self.assertEqual(faults, 0)
        return active, calls, text

    def test_each_takes_all_its_hooks_and_no_token_changes(self):
        texts = set()
        for name in ("gimbal", "gimbal_dp", "gimbal_ep", "gimbal_nocollab"):
            with self.subTest(name):
                active, calls, text = self.decide("--policy", name)
                self.assertEqual({hook: active.get(hook) for hook in HOOKS}, dict.fromkeys(HOOKS, name))
                self.assertGreaterEqual(calls[name], 2)    # the engine and the line of one request
                texts.add(text)
        self.assertEqual(len(texts), 1)

    def test_experts_move_only_where_placement_is_on(self):
        moved, asked = {}, {}
        for name in ("gimbal_dp", "gimbal_ep"):
            flags = ["--policy", name, "-tp", "2", "--window-rounds", "4", "--rearrange-every", "1", "--placement-weights", "balanced"]
            with Server("-dp", "2", *flags) as server:
                for i in range(6):
                    server.rpc("generate", dict(PROMPT, request_id=f"r{i}", sampling={"max_tokens": 24}))
                stats = server.rpc("server_stats")[-1]
                asked[name], moved[name] = stats["rearrangements"], stats["experts_moved"] + stats["moves_left"]
        self.assertGreater(asked["gimbal_dp"], 0)
        self.assertEqual(moved["gimbal_dp"], 0)
        self.assertGreater(asked["gimbal_ep"], 0)

    def test_a_hook_that_another_option_names_is_that_ones(self):
        active, _, _ = self.decide("--policy", "gimbal_ep", "--policy-order", "priority")
        self.assertEqual((active["select_engine"], active["order_queue"]), ("gimbal_ep", "priority"))

    def test_a_name_that_nobody_has_is_refused_with_the_nearest(self):
        done = gimbal("serve", MODEL, "--policy", "gimbal_pd", "--socket", "/tmp/never")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("gimbal_dp", done.stderr.decode())


if __name__ == "__main__":
    main()
