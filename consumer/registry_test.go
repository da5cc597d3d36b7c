package consumer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

// A handler for a type that no task can have would never run, and nobody would know why.
func TestTypesThatCannotBeEnqueuedCannotBeRegistered(t *testing.T) {
	t.Parallel()
	h := HandlerFunc(func(context.Context, holdfast.Task) error { return nil })
	for _, taskType := range []string{"", "two words", "é", strings.Repeat("x", holdfast.MaxNameLength+1)} {
		if err := (holdfast.NewTask{Type: taskType}).Validate(0); err == nil {
			t.Errorf("%q can be enqueued", taskType)
		}
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, "type") {
					t.Errorf("%q: %s", taskType, said)
				}
			}()
			new(Registry).Add(taskType, h)
		}()
	}
	var fine Registry
	fine.Add("Order.ship:v2/eu_1-x", h)
}
