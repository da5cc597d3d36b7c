//go:build race

package console_test

// sampled is whether the tests that visit every page visit only a sample, and large payloads are smaller. The race
// detector makes a file fifty times slower. One browser that visits one page after another shows it nothing that the
// sample does not show.
const sampled = true
