package slow_test

import (
	"testing"

	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestSkip(t *testing.T) {
	for value, want := range map[string]bool{"": false, "0": false, "1": true} {
		t.Setenv(slow.Variable, value)
		ran := false
		t.Run("value "+value, func(t *testing.T) {
			slow.Skip(t)
			ran = true
		})
		if ran != want || slow.All() != want {
			t.Errorf("with %s=%q a slow test ran: %t, want %t", slow.Variable, value, ran, want)
		}
	}
}

func TestPick(t *testing.T) {
	for value, want := range map[string]int{"": 2, "1": 1000} {
		t.Setenv(slow.Variable, value)
		if got := slow.Pick(2, 1000); got != want {
			t.Errorf("with %s=%q: %d, want %d", slow.Variable, value, got, want)
		}
	}
}
