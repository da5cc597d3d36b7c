package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
)

type order struct {
	Number int    `json:"number"`
	Card   string `json:"card"`
}

var errNoMoney = errors.New("the card is not covered")

func charge(_ context.Context, _ order, token string) error {
	fmt.Println("charged once for", token)
	return nil
}

// A handler receives a decoded payload. The returned error decides what happens to the task.
func ExampleRegister() {
	var handlers consumer.Registry
	consumer.Register(&handlers, "order.charge", func(ctx context.Context, task holdfast.Task, o order) error {
		// Each execution has a larger token. The bank refuses a token that is not larger than all earlier ones.
		err := charge(ctx, o, fmt.Sprintf("%s/%d", task.ID, task.Attempt))
		switch {
		case errors.Is(err, errNoMoney):
			return holdfast.Permanent(err) // a retry cannot help
		case errors.Is(err, context.DeadlineExceeded):
			return holdfast.Defer(time.Minute, err) // retries later, without using up an attempt
		}
		return err // nil is success; any other error is a failure, and the task is retried
	})
	consumer.Register(&handlers, "order.ship", func(context.Context, holdfast.Task, order) error { return nil })
	fmt.Println(handlers.Types())
	// Output: [order.charge order.ship]
}
