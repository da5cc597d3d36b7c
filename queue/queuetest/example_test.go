package queuetest_test

import (
	"context"
	"errors"
	"fmt"
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

// exampleT replaces *testing.T in the example.
type exampleT struct{ testing.TB }

func (*exampleT) Helper()                  {}
func (*exampleT) Cleanup(func())           {}
func (*exampleT) Context() context.Context { return context.Background() }
