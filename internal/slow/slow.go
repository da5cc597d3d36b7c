// Package slow marks the tests that take too long for every change: thousands of simulated seeds, mutants, floods, and
// faults that last as long as a lease. `make test` skips them; `make test-all` runs them.
package slow

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that selects the slow tests too, if it is set to 1.
const Variable = "HOLDFAST_TEST_ALL"

// All reports whether the slow tests are to run.
func All() bool { return os.Getenv(Variable) == "1" }

// Skip skips the test unless the slow tests are to run. It says how to run it.
func Skip(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skipf("slow: run it with %s=1 go test -run '^%s$', or all slow tests with make test-all", Variable, t.Name())
	}
}

// Checks sets how many random walks a property is checked with, unless the flag rapid.checks says so. It is for TestMain.
func Checks(some, all int) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks != nil && checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set(strconv.Itoa(Pick(some, all))); err != nil {
			panic(err) // an int is set to an int
		}
	}
}

// Pick returns all if the slow tests are to run, and otherwise some. Use it for a count of rounds, tasks or seeds.
func Pick(some, all int) int {
	if All() {
		return all
	}
	return some
}
