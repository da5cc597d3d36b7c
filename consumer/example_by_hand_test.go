package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// This example wires a producer, a worker and a janitor over one store by hand. The program links only these packages
// and one driver: no configuration, no metrics, no other store. Package queue does the same with less code.
func Example() {
	folder, err := os.MkdirTemp("", "holdfast-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := byHand(filepath.Join(folder, "tasks.db")); err != nil {
		log.Print(err)
	}
	// Output: welcome, ada@example.com
}

// byHand stores a task, runs it, and stops.
func byHand(path string) (err error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	tasks, err := sqlite.Open(ctx, sqlite.Options{Path: path, Create: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tasks.Close()) }()
	if _, err := tasks.MigrateUp(ctx); err != nil {
		return err
	}
	release, err := tasks.Own() // only one process serves a file
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	incarnation, err := tasks.Incarnation(ctx)
	if err != nil {
		return err
	}
	tickets := inproc.Open(inproc.Options{})
	defer func() { err = errors.Join(err, tickets.Close()) }()
	topology := broker.NewTopology("example", 1, incarnation)

	var handlers consumer.Registry
	consumer.Register(&handlers, "welcome", func(_ context.Context, _ holdfast.Task, email string) error {
		fmt.Println("welcome,", email)
		stop()
		return nil
	})
	watch, err := janitor.New(janitor.Options{Store: tasks, Desk: tasks, Broker: tickets, Topology: topology})
	if err != nil {
		return err
	}
	work, err := consumer.New(consumer.Options{Store: tasks, Broker: tickets, Topology: topology, Handlers: &handlers, OnReady: watch.Nudge})
	if err != nil {
		return err
	}
	produce, err := producer.New(producer.Options{Store: tasks, Broker: tickets, Topology: topology})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, produce.Close()) }()
	if _, err := produce.Enqueue(ctx, holdfast.NewTask{Type: "welcome", Payload: []byte(`"ada@example.com"`)}); err != nil {
		return err
	}

	var janitors sync.WaitGroup
	watching, end := context.WithCancel(context.Background())
	janitors.Go(func() { _ = watch.Run(watching) }) // always returns nil
	err = work.Run(ctx)
	end() // the janitor stops after the worker
	janitors.Wait()
	return err
}
