// Package slow marks slow tests, and lets the other tests pass on slow machines.
//
// Slow tests are thousands of simulated seeds, mutants, floods, and faults that last as long as a lease. `make test`
// skips them, and `make test-all` executes them: see Skip and Pick.
//
// On a slow or busy machine, every time in a test is multiplied by one factor: see Times and Patience.
package slow

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that enables slow tests if it is set to 1.
const Variable = "HOLDFAST_TEST_ALL"

// All reports whether slow tests are enabled.
func All() bool { return os.Getenv(Variable) == "1" }

// Skip skips the test unless slow tests are enabled. The message says how to enable this test.
func Skip(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skipf("slow: run it with %s=1 go test -run '^%s$', or all slow tests with make test-all", Variable, t.Name())
	}
}

// Checks sets the number of random sequences with which rapid checks a property, unless the flag rapid.checks is set.
// It is for TestMain.
func Checks(some, all int) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks != nil && checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set(strconv.Itoa(Pick(some, all))); err != nil {
			panic(err) // the flag is an int
		}
	}
}

// Pick returns all if slow tests are enabled, and some otherwise. It selects a number of rounds, tasks or seeds.
func Pick(some, all int) int {
	if All() {
		return all
	}
	return some
}
