//go:build !race

package console_test

// sampled is whether the tests that visit every page visit only a sample, and large payloads are smaller.
const sampled = false
