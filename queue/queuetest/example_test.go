package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/queue/queuetest"
)

// signUp is the code under test.
func signUp(ctx context.Context, q *queue.Client, email string) error {
	_, err := q.Enqueue(ctx, "reminder", email, queue.In(24*time.Hour))
	return err
}

// handlers registers the handlers of the program.
func handlers(q *queue.Client, send func(email string) error) error {
	return queue.Handle(q, "reminder", func(_ context.Context, _ holdfast.Task, email string) error { return send(email) })
}

func ExampleQueue() {
	var t testing.TB = new(exampleT) // in a program, the argument of the test function

	q := queuetest.New(t)
	if err := handlers(q.Client, func(email string) error {
		fmt.Println("reminded", email)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := signUp(t.Context(), q.Client, "ada@example.com"); err != nil {
		t.Fatal(err)
	}
	q.RequireEnqueued("reminder", "ada@example.com", queue.In(24*time.Hour))
	task := q.RunOne() // a day passes at once
	fmt.Println(task.State, q.Now().Format(time.DateOnly))
	// Output:
	// reminded ada@example.com
	// done 2000-01-02
}

// The schedule stores its task at the next moment, which comes at once.
func ExampleQueue_FireSchedule() {
	var t testing.TB = new(exampleT) // in a program, the argument of the test function

	q := queuetest.New(t)
	if err := handlers(q.Client, func(email string) error {
		fmt.Println("reminded", email)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	daily := queue.Cron("daily", "30 9 * * *", "reminder", "ada@example.com", queue.Timezone("Europe/Berlin"))
	if _, err := q.Schedule(t.Context(), daily); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		task := q.FireSchedule("daily")
		at, _ := queue.ScheduledFor(task)
		fmt.Println(at.Format(time.RFC3339))
		q.RunDue()
	}
	// Output:
	// 2000-01-01T08:30:00Z
	// reminded ada@example.com
	// 2000-01-02T08:30:00Z
	// reminded ada@example.com
}

// The charge succeeds, and the shipment fails once. The second attempt does not charge again.
func ExampleQueue_RequireStep() {
	var t testing.TB = new(exampleT) // in a program, the argument of the test function

	q := queuetest.New(t)
	if err := queue.Handle(q.Client, "order", func(ctx context.Context, task holdfast.Task, order string) error {
		charge, err := queue.Once(ctx, "charge", func() (string, error) {
			fmt.Println("charging", order)
			return "ch_1", nil
		})
		if err != nil {
			return err
		}
		if task.Attempt == 1 {
			return errors.New("no carrier")
		}
		if err := queue.Next(ctx, "ship", order); err != nil {
			return err
		}
		return queue.Output(ctx, charge)
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), "order", "o7"); err != nil {
		t.Fatal(err)
	}
	task := q.RunOne()
	var charge string
	q.RequireStep(task, "charge", &charge)
	fmt.Println(task.State, charge)
	q.RequireNotEnqueued("ship", queuetest.Any)

	task = q.RunOne()
	q.RequireEnqueued("ship", "o7")
	q.RequireOutput(task, &charge)
	fmt.Println(task.State, charge)
	// Output:
	// charging o7
	// ready ch_1
	// done ch_1
}

// All stages of the batch run at once.
func ExampleQueue_RunBatch() {
	var t testing.TB = new(exampleT) // in a program, the argument of the test function

	q := queuetest.New(t)
	if err := queue.HandleBatch(q.Client, "words", queue.Batch[string, string, int]{
		Split: func(ctx context.Context, text string, to *queue.Split[string]) error {
			for _, word := range strings.Fields(text) {
				if err := to.Add(ctx, word, word); err != nil {
					return err
				}
			}
			return nil
		},
		Map: func(_ context.Context, _ holdfast.Task, word string) (int, error) { return len(word), nil },
	}); err != nil {
		t.Fatal(err)
	}
	id, err := q.StartBatch(t.Context(), "words", "to be or not")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(q.RunBatch(id).State)
	for word, err := range queue.ResultsOf[string, int](t.Context(), q.Client, id) {
		fmt.Println(word.Payload, word.Output, err)
	}
	// Output:
	// done
	// to 2 <nil>
	// be 2 <nil>
	// or 2 <nil>
	// not 3 <nil>
}

// exampleT replaces *testing.T in the example.
type exampleT struct{ testing.TB }

func (*exampleT) Helper()                  {}
func (*exampleT) Cleanup(func())           {}
func (*exampleT) Context() context.Context { return context.Background() }
