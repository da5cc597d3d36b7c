package main

import (
	"regexp"
	"testing"

	"github.com/holdfastq/holdfast/workshop/exampletest"
)

// A worker is killed just before the 9,999th of 10,000 products. Each product is indexed, and only those whose results
// were not stored run again.
func TestReindexAfterAKillRepeatsNothingThatHadEnded(t *testing.T) {
	t.Parallel()
	exampletest.Run(t, func(t *testing.T, printed, _ string) {
		for _, want := range []string{
			`killed it with kill -9, when product 9999 was about to be indexed\n[1-9]\d{3} subtasks had ended\n`,
			`the batch is done: 10000 subtasks, 30000 terms\n`,
			`indexed: 10000 products, \d+ of them twice\n`,
			`of the [1-9]\d{3} that had ended, 0 were repeated\n`,
		} {
			if !regexp.MustCompile(want).MatchString(printed) {
				t.Errorf("the output does not match %q:\n%s", want, printed)
			}
		}
	})
}
