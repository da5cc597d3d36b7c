package contain_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/contain"
)

func TestPanicsAreErrors(t *testing.T) {
	t.Parallel()
	if n, err := contain.Value(func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("no panic: %d, %v", n, err)
	}
	cause := errors.New("cause")
	if _, err := contain.Value(func() (int, error) { return 0, cause }); err != cause {
		t.Errorf("an error: %v", err)
	}
	var none map[string]int
	_, err := contain.Value(func() (int, error) { none["x"] = 1; return 7, nil })
	p, ok := errors.AsType[*holdfast.PanicError](err)
	if !ok || !strings.Contains(p.Stack, "TestPanicsAreErrors") {
		t.Errorf("a panic: %v, %+v", err, p)
	}
}
