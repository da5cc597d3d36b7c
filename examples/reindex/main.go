// Command reindex shows a batch that survives kill -9. A category of products becomes a batch with a subtask for each
// product. The command runs a worker as a process of its own, kills it when the last but one product is about to be
// indexed, and starts another worker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

func main() {
	log.SetFlags(0)
	products := flag.Int("products", 10_000, "number of products in the category, at least 2")
	worker := flag.String("worker", "", "run as a worker that writes to the index at this URL")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	run := func() error { return demonstrate(ctx, *products) }
	if *worker != "" {
		run = func() error { return work(ctx, *worker) }
	}
	err := run()
	stop()
	if err != nil {
		log.Fatal("reindex: ", err)
	}
}

// demonstrate rebuilds the index of a category, and kills a worker meanwhile.
func demonstrate(ctx context.Context, products int) error {
	if products < 2 {
		return fmt.Errorf("%d products are too few", products)
	}
	if os.Getenv("DATABASE_URL") == "" { // a file for this demonstration only
		folder, err := os.MkdirTemp("", "reindex")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		os.Setenv("DATABASE_URL", "sqlite:"+filepath.Join(folder, "reindex.db"))
	}
	search := newIndex(products, products-2)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	go func() { log.Fatal(http.Serve(listener, search)) }()
	q, err := queue.Open(ctx, queue.Migrate())
	if err != nil {
		return err
	}
	defer q.Close()
	id, err := q.StartBatch(ctx, "reindex", Category{"shoes", products})
	if err != nil {
		return err
	}
	fmt.Printf("batch %s: the category shoes has %d products\n", id, products)

	kill, ended, err := startWorker(url)
	if err != nil {
		return err
	}
	select {
	case <-search.reached:
		kill()
	case <-ended:
		return errors.New("the worker has ended by itself")
	}
	fmt.Printf("killed it with kill -9, when product %d was about to be indexed\n", products-1)
	done, err := doneProducts(ctx, q, id)
	if err != nil {
		return err
	}
	fmt.Printf("%d subtasks had ended\n", len(done))

	before := search.resume()
	if kill, _, err = startWorker(url); err != nil {
		return err
	}
	defer kill()
	status, err := q.WaitBatch(ctx, id)
	if err != nil {
		return err
	}
	terms, err := queue.ReducedOf[int](ctx, q, id)
	if err != nil {
		return fmt.Errorf("the batch is %s: %w", status.State, err)
	}
	fmt.Printf("the batch is %s: %d subtasks, %d terms\n", status.State, status.Subtasks.Done, terms)
	search.report(before, done)
	return nil
}

// doneProducts returns the products whose subtasks have ended.
func doneProducts(ctx context.Context, q *queue.Client, id holdfast.BatchID) (done []int, err error) {
	for subtask, err := range queue.ResultsOf[Product, int](ctx, q, id) {
		if err != nil {
			return nil, err
		}
		if subtask.Task.State == holdfast.Done {
			done = append(done, subtask.Payload.Number)
		}
	}
	return done, nil
}

// startWorker runs this program as a worker. kill sends SIGKILL to the process and waits for its end.
func startWorker(url string) (kill func(), ended <-chan struct{}, err error) {
	program, err := os.Executable()
	command, end := exec.Command(program, "-worker", url), make(chan struct{})
	command.Stderr = os.Stderr
	_, wrong := command.StdinPipe() // it ends when this process ends, however that happens
	if err = errors.Join(err, wrong, command.Start()); err != nil {
		return nil, nil, err
	}
	fmt.Printf("started worker %d\n", command.Process.Pid)
	go func() {
		_ = command.Wait()
		close(end)
	}()
	return func() { _ = command.Process.Kill(); <-end }, end, nil
}

// work runs batches of type reindex until the process that has started this one ends.
func work(ctx context.Context, url string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	q, err := queue.Open(ctx)
	if err != nil {
		return err
	}
	defer q.Close()
	handle(q, url)
	return q.Run(ctx)
}
