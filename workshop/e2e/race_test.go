//go:build race

package e2e

// raceFlags are the build flags of the program, which uses the race detector if the tests do.
var raceFlags = []string{"-race"}
