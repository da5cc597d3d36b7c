// Command registration shows how a spreadsheet becomes a batch. Each row of the sheet is a subtask that registers a
// product. Rows that are wrong fail for good, with a reason. When all rows have ended, the batch writes a sheet with
// the outcome of each row.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

func main() {
	log.SetFlags(0)
	sheet := flag.String("sheet", "", "spreadsheet with sku, name and price; if empty, the command writes one")
	results := flag.String("results", ".", "folder of the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := demonstrate(ctx, *sheet, *results)
	stop()
	if err != nil {
		log.Fatal("registration: ", err)
	}
}

// demonstrate registers the products of a sheet.
func demonstrate(ctx context.Context, sheet, results string) (err error) {
	if os.Getenv("DATABASE_URL") == "" { // a file for this demonstration only
		folder, err := os.MkdirTemp("", "registration")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		os.Setenv("DATABASE_URL", "sqlite:"+filepath.Join(folder, "registration.db"))
	}
	if sheet == "" {
		sheet = "sample.xlsx"
		if err := writeSample(sheet, 200); err != nil {
			return err
		}
		fmt.Println("wrote sample.xlsx with 200 rows")
	}
	if sheet, err = filepath.Abs(sheet); err != nil {
		return err
	}
	content, err := os.ReadFile(sheet)
	if err != nil {
		return err
	}
	errorsOnly := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	q, err := queue.Open(ctx, queue.Migrate(), queue.NoSignals(), queue.Slog(errorsOnly))
	if err != nil {
		return err
	}
	defer q.Close()
	handle(q, &shop{rows: make(map[string]int)}, results)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(q.Run(ctx)) }()

	// While a batch with the name runs, the upload of the same sheet starts no other one. All rows may fail.
	name := fmt.Sprintf("register-%x", sha256.Sum256(content))
	id, err := q.StartBatch(ctx, "register", upload{sheet}, queue.BatchName(name), queue.AllowFailed("100%"))
	if err != nil {
		return err
	}
	fmt.Printf("batch %s: started\n", id)
	status, err := q.WaitBatch(ctx, id)
	if err != nil {
		return errors.Join(err, context.Cause(ctx)) // perhaps why the worker has ended
	}
	n := status.Subtasks
	fmt.Printf("batch %s: %s, %d rows, %d registered, %d failed\n", id, status.State, n.Total, n.Done, n.Dead)
	if status.State != queue.BatchDone {
		return fmt.Errorf("the batch waits for a person: %s", status.Stopped)
	}
	for row, err := range queue.ResultsOf[row, int](ctx, q, id) {
		if err != nil {
			return err
		}
		if row.Task.State != holdfast.Done {
			fmt.Printf("  row %3d: %s\n", row.Payload.Number, row.Task.LastError)
		}
	}
	written, err := queue.ReducedOf[string](ctx, q, id)
	if err != nil {
		return err
	}
	fmt.Println("wrote", written)
	return nil
}
