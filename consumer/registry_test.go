package consumer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

// A handler for an invalid type would never run, so it cannot be registered.
func TestTypesThatCannotBeEnqueuedCannotBeRegistered(t *testing.T) {
	t.Parallel()
	h := HandlerFunc(func(context.Context, holdfast.Task) error { return nil })
	for _, taskType := range []string{"", "two words", "é", strings.Repeat("x", holdfast.MaxNameLength+1)} {
		if err := (holdfast.NewTask{Type: taskType}).Validate(0); err == nil {
			t.Errorf("%q can be enqueued", taskType)
		}
		func() {
			defer func() {
				if message := fmt.Sprint(recover()); !strings.Contains(message, "type") {
					t.Errorf("%q: %s", taskType, message)
				}
			}()
			new(Registry).Add(taskType, h)
		}()
	}
	var fine Registry
	fine.Add("Order.ship:v2/eu_1-x", h)
}
