package producer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/producer"
)

func open(ctx context.Context) *app.Backend {
	cfg, err := configs.Load(configs.Options{Env: os.Environ()})
	if err != nil {
		log.Fatal(err)
	}
	backend, err := app.Open(ctx, cfg, logrus.New())
	if err != nil {
		log.Fatal(err)
	}
	return backend
}

// This task runs in a minute. It is stored once per order, even if the code runs several times.
func ExampleProducer_Enqueue() {
	ctx := context.Background()
	backend := open(ctx)
	defer backend.Close()
	p, err := producer.New(producer.Options{Store: backend.Store, Broker: backend.Broker, Topology: backend.Topology})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()

	result, err := p.Enqueue(ctx, holdfast.NewTask{
		Type: "invoice.send", Payload: []byte(`{"order": 7}`), Delay: time.Minute, Unique: "invoice/7",
	})
	switch {
	case errors.Is(err, holdfast.ErrInvalid):
		log.Fatal("invalid task: ", err)
	case err != nil:
		log.Fatal("the task may or may not be stored; it is safe to call Enqueue again, because of the unique key: ", err)
	case result.Duplicate:
		fmt.Println("already stored as task", result.ID)
	default:
		fmt.Println("stored as task", result.ID)
	}
}

// This example stores an order and the task that ships it in one transaction.
func ExampleProducer_EnqueueTx() {
	ctx := context.Background()
	backend := open(ctx)
	defer backend.Close()
	p := backend.Producer(nil)
	defer p.Close()
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL")) // the store's database
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if _, err := tx.ExecContext(ctx, "insert into orders (number) values ($1)", 7); err != nil {
		log.Print(err)
		return
	}
	if _, err := p.EnqueueTx(ctx, tx, holdfast.NewTask{Type: "order.ship", Payload: []byte(`{"number": 7}`)}); err != nil {
		log.Print(err)
		return
	}
	if err := tx.Commit(); err != nil {
		log.Print(err)
	}
}
