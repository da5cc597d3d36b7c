package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
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

// A handler gets its payload decoded, and says with its error what shall become of the task.
func ExampleRegister() {
	var handlers consumer.Registry
	consumer.Register(&handlers, "order.charge", func(ctx context.Context, task holdfast.Task, o order) error {
		// The token is larger at every execution: the bank refuses one it has seen, or a smaller one.
		err := charge(ctx, o, fmt.Sprintf("%s/%d", task.ID, task.Attempt))
		switch {
		case errors.Is(err, errNoMoney):
			return holdfast.Permanent(err) // no other attempt can help
		case errors.Is(err, context.DeadlineExceeded):
			return holdfast.RetryAfter(time.Minute, err) // come back later; nothing is counted
		}
		return err // nil is success, anything else a failure that is retried
	})
	consumer.Register(&handlers, "order.ship", func(context.Context, holdfast.Task, order) error { return nil })
	fmt.Println(handlers.Types())
	// Output: [order.charge order.ship]
}

// A worker in a program of one's own. A janitor must run somewhere too.
func ExampleConsumer_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := configs.Load(configs.Options{Env: os.Environ()})
	if err != nil {
		log.Fatal(err)
	}
	backend, err := app.Open(ctx, cfg, logrus.New())
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	var handlers consumer.Registry
	handlers.Add("ping", consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
	worker, err := consumer.New(consumer.Options{
		Store: backend.Store, Broker: backend.Broker, Topology: backend.Topology,
		Handlers: &handlers, Settings: cfg.Settings(), Concurrency: 20,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil { // returns when the drain is over
		log.Fatal(err)
	}
}
