package queue_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/queue"
)

type Welcome struct{ Email string }

// tempFile returns the path of a file in a new folder, and a function that removes the folder.
func tempFile() (path string, remove func()) {
	folder, err := os.MkdirTemp("", "holdfast-example-")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(folder, "holdfast.db"), func() { _ = os.RemoveAll(folder) }
}

// This program stores a task and runs it. A real program needs neither File nor a context that ends. Open reads
// DATABASE_URL and AMQP_URL, and SIGTERM stops Run.
func Example() {
	path, remove := tempFile()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	queue.Handle(q, "welcome", func(_ context.Context, task holdfast.Task, w Welcome) error {
		fmt.Printf("welcome, %s (attempt %d)\n", w.Email, task.Attempt)
		stop()
		return nil
	})
	if _, err := q.Enqueue(ctx, "welcome", Welcome{"ada@example.com"}); err != nil {
		log.Print(err)
	}
	fmt.Println("stopped:", q.Run(ctx))
	// Output:
	// welcome, ada@example.com (attempt 1)
	// stopped: <nil>
}

// Options override the environment. Set accepts every key in configs/holdfast.example.yaml.
func ExampleOpen() {
	path, remove := tempFile()
	defer remove()
	q, err := queue.Open(context.Background(),
		queue.File(path),
		queue.Concurrency(100),
		queue.Queues("default", "mail"),
		queue.Set("worker.drain_timeout", "1m"),
		queue.Slog(slog.Default()),
	)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(q.Close())
	// Output: <nil>
}

// Options override settings of the configuration. The error of the handler decides the next state of the task.
func ExampleHandle() {
	path, remove := tempFile()
	defer remove()
	q, err := queue.Open(context.Background(), queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	errBusy, errGone := errors.New("busy"), errors.New("the account is gone")
	send := func(Welcome) error { return nil }
	err = queue.Handle(q, "welcome", func(ctx context.Context, task holdfast.Task, w Welcome) error {
		err := send(w)
		switch {
		case errors.Is(err, errGone):
			return holdfast.Permanent(err) // dead at once
		case errors.Is(err, errBusy):
			return holdfast.Defer(time.Minute, err) // runs again in a minute, without using up an attempt
		}
		return err // nil is success; any other error is a failure, and the task is retried
	}, queue.MaxAttempts(5), queue.Backoff(time.Second, 10*time.Minute), queue.Timeout(30*time.Second))
	fmt.Println(err)
	// Output: <nil>
}

// This program registers the task type http, which the daemon has built in.
func ExampleHandle_http() {
	path, remove := tempFile()
	defer remove()
	q, err := queue.Open(context.Background(), queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	deliver, err := webhook.New(webhook.Options{Timeout: 10 * time.Second})
	if err != nil {
		log.Print(err)
		return
	}
	err = queue.Handle(q, webhook.Type, func(ctx context.Context, task holdfast.Task, _ json.RawMessage) error {
		return deliver.Handle(ctx, task)
	})
	fmt.Println(err)
	// Output: <nil>
}

// A policy can depend on the error of the attempt.
func ExamplePolicyFunc() {
	path, remove := tempFile()
	defer remove()
	q, err := queue.Open(context.Background(), queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	err = queue.Handle(q, "welcome", func(context.Context, holdfast.Task, Welcome) error { return nil },
		queue.PolicyFunc(func(policy holdfast.Policy, err error) holdfast.Policy {
			if errors.Is(err, holdfast.ErrTimeout) {
				policy.MaxAttempts = 2
			}
			return policy
		}))
	fmt.Println(err)
	// Output: <nil>
}

// Middleware wraps the handlers of all types, or of one.
func ExampleUse() {
	path, remove := tempFile()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	timed := func(next queue.Handler) queue.Handler {
		return func(ctx context.Context, task holdfast.Task) error {
			began := time.Now()
			err := next(ctx, task)
			fmt.Printf("%s: took less than an hour: %t, error: %v\n", task.Type, time.Since(began) < time.Hour, err)
			stop()
			return err
		}
	}
	q, err := queue.Open(ctx, queue.File(path), queue.Use(timed))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	queue.Handle(q, "welcome", func(context.Context, holdfast.Task, Welcome) error { return nil })
	if _, err := q.Enqueue(ctx, "welcome", Welcome{"ada@example.com"}); err != nil {
		log.Print(err)
	}
	if err := q.Run(ctx); err != nil {
		log.Print(err)
	}
	// Output: welcome: took less than an hour: true, error: <nil>
}

// The task runs in an hour. The second call with the same key stores no second task.
func ExampleClient_Enqueue() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	for range 2 {
		result, err := q.Enqueue(ctx, "welcome", Welcome{"ada@example.com"}, queue.In(time.Hour), queue.Unique("welcome/ada"))
		fmt.Println(result.ID, result.Duplicate, err)
	}
	// Output:
	// 1 false <nil>
	// 1 true <nil>
}

func ExampleClient_EnqueueMany() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	var tasks []queue.NewTask
	for _, name := range []string{"ada", "grace", "barbara"} {
		tasks = append(tasks, queue.NewTask{Type: "welcome", Payload: Welcome{name + "@example.com"}})
	}
	results, err := q.EnqueueMany(ctx, tasks)
	fmt.Println(len(results), err)
	// Output: 3 <nil>
}

// An account and its welcome task are stored in one transaction. With PostgreSQL the program opens DATABASE_URL instead
// of the file.
func ExampleClient_Tx() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "create table accounts (email text primary key)"); err != nil {
		log.Fatal(err)
	}

	signUp := func(email string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after the commit
		if _, err := tx.ExecContext(ctx, "insert into accounts (email) values (?)", email); err != nil {
			return err
		}
		if _, err := q.Tx(tx).Enqueue(ctx, "welcome", Welcome{email}); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(signUp("ada@example.com"))
	// Output: <nil>
}

// Retry runs a dead task again, after an operator has repaired the cause of its failure.
func ExampleClient_Retry() {
	path, remove := tempFile()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	repaired := make(chan struct{})
	queue.Handle(q, "welcome", func(context.Context, holdfast.Task, Welcome) error {
		select {
		case <-repaired:
			return nil
		default:
			return holdfast.Permanent(errors.New("no such template"))
		}
	})
	ended := make(chan error)
	go func() { ended <- q.Run(ctx) }()

	result, err := q.Enqueue(ctx, "welcome", Welcome{"ada@example.com"})
	if err != nil {
		log.Print(err)
	}
	task, err := q.Wait(ctx, result.ID)
	fmt.Println(task.State, task.LastError, err)
	close(repaired)
	if _, err := q.Retry(ctx, result.ID); err != nil {
		log.Print(err)
	}
	task, err = q.Wait(ctx, result.ID)
	fmt.Println(task.State, err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// dead no such template <nil>
	// done <nil>
	// <nil>
}

// The first attempt charges and fails, and the second one does not charge again. It stores the task that ships with its
// success.
func ExampleOnce() {
	path, remove := tempFile()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	queue.Handle(q, "order", func(ctx context.Context, task holdfast.Task, order string) error {
		charge, err := queue.Once(ctx, "charge", func() (string, error) {
			fmt.Println("charging", order) // in a program, with task.IdempotencyKey()
			return "ch_1", nil
		})
		if err != nil {
			return err
		}
		if task.Attempt == 1 {
			return errors.New("no address")
		}
		if err := queue.Next(ctx, "ship", order); err != nil {
			return err
		}
		return queue.Output(ctx, charge)
	}, queue.Delays(time.Millisecond))
	queue.Handle(q, "ship", func(_ context.Context, _ holdfast.Task, order string) error {
		fmt.Println("shipping", order)
		stop()
		return nil
	})
	order, err := q.Enqueue(ctx, "order", "o7")
	if err != nil {
		log.Print(err)
	}
	fmt.Println("stopped:", q.Run(ctx))
	charge, err := queue.OutputOf[string](context.Background(), q, order.ID)
	fmt.Println(charge, err)
	// Output:
	// charging o7
	// shipping o7
	// stopped: <nil>
	// ch_1 <nil>
}

// The order is paid and the task is done in one transaction. With PostgreSQL the program opens DATABASE_URL instead of
// the file.
func ExampleCompleteTx() {
	path, remove := tempFile()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "create table paid (id text primary key)"); err != nil {
		log.Fatal(err)
	}

	queue.Handle(q, "pay", func(ctx context.Context, _ holdfast.Task, order string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after the commit
		if _, err := tx.ExecContext(ctx, "insert into paid (id) values (?)", order); err != nil {
			return err
		}
		if err := queue.Next(ctx, "ship", order); err != nil {
			return err
		}
		if err := queue.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	})
	queue.Handle(q, "ship", func(_ context.Context, _ holdfast.Task, order string) error {
		fmt.Println("shipping", order)
		stop()
		return nil
	})
	order, err := q.Enqueue(ctx, "pay", "o7")
	if err != nil {
		log.Print(err)
	}
	fmt.Println("stopped:", q.Run(ctx))
	task, err := q.Task(context.Background(), order.ID)
	fmt.Println(task.State, err)
	// Output:
	// shipping o7
	// stopped: <nil>
	// done <nil>
}

// Cancel stops a task before it runs.
func ExampleClient_Cancel() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	result, err := q.Enqueue(ctx, "welcome", Welcome{"ada@example.com"}, queue.In(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	task, err := q.Cancel(ctx, result.ID)
	fmt.Println(task.State, err)
	// Output: cancelled <nil>
}

// A program declares its schedules at each start. The second call changes nothing.
func ExampleClient_Schedule() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	for range 2 {
		result, err := q.Schedule(ctx, queue.Cron("greeting", "30 9 1 1 *", "welcome", Welcome{"ada@example.com"},
			queue.Timezone("Europe/Berlin"), queue.Missed(queue.RunOne), queue.Overlap(queue.Skip), queue.MaxAttempts(3)))
		fmt.Println(result.Change, result.Next.Format("02 Jan 15:04 MST"), err)
	}
	// Output:
	// created 01 Jan 08:30 UTC <nil>
	// unchanged 01 Jan 08:30 UTC <nil>
}

// A part of a program owns its schedules. Prune deletes those that it no longer declares.
func ExampleClient_ScheduleAll() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	daily := queue.Cron("invoices", "@daily", "invoice", nil)
	hourly := queue.Every("payments", time.Hour, "payment", nil, queue.Jitter(time.Minute))
	for build, schedules := range [][]queue.Schedule{{daily, hourly}, {hourly}} {
		results, err := q.ScheduleAll(ctx, "billing", schedules, queue.Prune(), queue.Revision(build))
		for _, r := range results.Schedules {
			fmt.Println(r.Name, r.Change)
		}
		fmt.Println("deleted:", results.Undeclared, err)
	}
	// Output:
	// invoices created
	// payments created
	// deleted: [] <nil>
	// payments unchanged
	// deleted: [invoices] <nil>
}

// A program scans the orders of its zone, ten at a time. The second declaration changes nothing, and keeps the shard map
// in which a person has moved a shard.
func ExampleHandleShards() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path), queue.Queues("berlin"))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	const orders, shards = 25, 100
	scan := func(order int64) error { return nil }
	err = queue.HandleShards(q, "scan-orders", func(ctx context.Context, pass *queue.Pass) error {
		for offset := pass.Offset(); offset < orders; {
			end := min(offset+10, orders)
			for order := offset + 1; order <= end; order++ {
				if !pass.Owns(strconv.FormatInt(order%shards, 10)) {
					continue
				}
				if err := scan(order); err != nil {
					return err
				}
			}
			if err := pass.Save(ctx, end); err != nil {
				return err
			}
			offset = end
		}
		return nil
	})
	fmt.Println(err)
	job := queue.ShardJob{Name: "scan", Type: "scan-orders", Every: time.Minute, Zones: map[string]string{"0": "berlin", "1": "oslo"}}
	fmt.Println(q.SetShardJob(ctx, job))
	fmt.Println(q.MoveShard(ctx, "scan", "1", "berlin", "oslo needs room"))
	fmt.Println(q.SetShardJob(ctx, job))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// <nil>
}

// A handler computes the period of its work from the moment of the schedule, not from the present time.
func ExampleScheduledFor() {
	path, remove := tempFile()
	defer remove()
	q, err := queue.Open(context.Background(), queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	report := func(from, to time.Time) error { return nil }
	err = queue.Handle(q, "report", func(_ context.Context, task holdfast.Task, _ json.RawMessage) error {
		at, ok := queue.ScheduledFor(task)
		if !ok {
			at = task.CreatedAt // not a task of a schedule
		}
		return report(at.AddDate(0, 0, -1), at)
	})
	fmt.Println(err)
	// Output: <nil>
}

// A program pulls the orders of a shop in slices of five minutes, beginning 90 days ago. The second declaration changes
// nothing.
func ExampleClient_SetSource() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	pull := func(shop string, from, to time.Time) error { return nil }
	err = queue.HandleSlices(q, "orders.pull", func(_ context.Context, _ holdfast.Task, s queue.Slice) error {
		return pull(s.Source, s.From, s.To) // From already includes the overlap
	})
	fmt.Println(err)
	for range 2 {
		result, err := q.SetSource(ctx, queue.Source{Name: "shop-17", Type: "orders.pull", Every: 5 * time.Minute, Overlap: 5 * time.Second,
			Start: queue.Ago(90 * 24 * time.Hour), InFlight: 4})
		fmt.Println(result.Name, result.Change, err)
	}
	// Output:
	// <nil>
	// shop-17 created <nil>
	// shop-17 unchanged <nil>
}

// A program squares numbers and sums the squares. A split that runs again continues after its cursor.
func ExampleHandleBatch() {
	path, remove := tempFile()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	err = queue.HandleBatch(q, "squares", queue.Batch[int, int, int]{
		Split: func(ctx context.Context, last int, to *queue.Split[int]) error {
			done, _ := strconv.Atoi(to.Cursor())
			for n := done + 1; n <= last; n++ {
				if err := to.Add(ctx, n, strconv.Itoa(n)); err != nil {
					return err
				}
			}
			return nil
		},
		Map: func(_ context.Context, _ holdfast.Task, n int) (int, error) { return n * n, nil },
		Reduce: func(ctx context.Context, items *queue.Results[int, int]) (any, error) {
			sum := 0
			for item, err := range items.All(ctx) {
				if err != nil {
					return nil, err
				}
				sum += item.Output
			}
			return sum, nil
		},
	})
	fmt.Println(err)
	id, err := q.StartBatch(ctx, "squares", 100)
	if err != nil {
		log.Print(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- q.Run(ctx) }()
	status, err := q.WaitBatch(ctx, id)
	fmt.Println(status.State, status.Subtasks.Done, err)
	sum, err := queue.ReducedOf[int](ctx, q, id)
	fmt.Println(sum, err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// <nil>
	// done 100 <nil>
	// 338350 <nil>
	// <nil>
}

// A program adds subtasks while they run. After an error, it can repeat a call of Add.
func ExampleClient_OpenBatch() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	b, err := q.OpenBatch(ctx, queue.BatchName("gallery-42"), queue.Then("gallery.ready", 42))
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(b.Add(ctx, "resize", "a.png", "b.png"), b.Add(ctx, "resize", "c.png"), b.Seal(ctx))
	status, err := q.Batch(ctx, b.ID())
	fmt.Println(status.Name, status.State, status.Subtasks.Total, status.Sealed, err)
	// Output:
	// <nil> <nil> <nil>
	// gallery-42 running 3 true <nil>
}

// Two tasks run at the same time, and a third one sums their outputs.
func ExampleClient_StartChain() {
	path, remove := tempFile()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q, err := queue.Open(ctx, queue.File(path))
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	queue.Handle(q, "double", func(ctx context.Context, _ holdfast.Task, n int) error { return queue.Output(ctx, 2*n) })
	queue.Handle(q, "sum", func(ctx context.Context, _ holdfast.Task, _ any) error {
		numbers, err := queue.Previous[int](ctx)
		fmt.Println(numbers, err)
		stop()
		return nil
	})
	_, err = q.StartChain(ctx, []queue.Stage{{{Type: "double", Payload: 4}, {Type: "double", Payload: 5}}, {{Type: "sum"}}})
	fmt.Println(err)
	fmt.Println(q.Run(ctx))
	// Output:
	// <nil>
	// [8 10] <nil>
	// <nil>
}
