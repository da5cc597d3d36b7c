//go:build race

package e2e

// raceFlags has the program built with the race detector if the tests have it.
var raceFlags = []string{"-race"}
