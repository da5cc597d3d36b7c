package holdfast_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastq/holdfast"
)

func TestHintOf(t *testing.T) {
	t.Parallel()
	cause := errors.New("no such table")
	migrate, serve := holdfast.Hint{Kind: holdfast.HintMigrate}, holdfast.Hint{Kind: holdfast.HintServeQueue, Arg: "mail"}
	hinted := holdfast.WithHint(cause, migrate)
	for name, c := range map[string]struct {
		err  error
		want holdfast.Hint
	}{
		"none":               {cause, holdfast.Hint{}},
		"no error":           {nil, holdfast.Hint{}},
		"given":              {hinted, migrate},
		"wrapped":            {fmt.Errorf("claim: %w", hinted), migrate},
		"with a sentinel":    {fmt.Errorf("claim: %w: %w", holdfast.ErrUnavailable, hinted), migrate},
		"joined":             {errors.Join(errors.New("close"), hinted), migrate},
		"the outer one":      {holdfast.WithHint(fmt.Errorf("claim: %w", hinted), serve), serve},
		"the first one":      {errors.Join(holdfast.WithHint(cause, serve), hinted), serve},
		"beside an outcome":  {holdfast.Permanent(hinted), migrate},
		"beside its details": {holdfast.Detailed(hinted, "class", nil), migrate},
	} {
		if got := holdfast.HintOf(c.err); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	if hinted.Error() != cause.Error() || !errors.Is(hinted, cause) {
		t.Errorf("the hint changes the error to %q", hinted)
	}
	if holdfast.WithHint(nil, migrate) != nil {
		t.Error("WithHint(nil) is not nil")
	}
}

func ExampleWithHint() {
	err := fmt.Errorf("open the store: %w", holdfast.WithHint(errors.New("schema 3 is older than 7"), holdfast.Hint{Kind: holdfast.HintMigrate}))
	fmt.Println(err)
	if holdfast.HintOf(err).Kind == holdfast.HintMigrate {
		fmt.Println("migrate it first")
	}
	// Output:
	// open the store: schema 3 is older than 7
	// migrate it first
}
