package holdfast_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
)

// The delays of this policy begin at one second, double each time, and stop growing at one minute.
func ExamplePolicy() {
	policy := holdfast.DefaultPolicy()
	policy.Base, policy.Factor, policy.Max = time.Second, 2, time.Minute
	policy.Jitter = 0 // for the same output at each run
	policy.MaxAttempts = 8
	if err := policy.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	const dice = 0.5
	for failures := 1; failures < policy.MaxAttempts; failures++ {
		fmt.Print(policy.Delay(failures, dice), " ")
	}
	fmt.Println("dead")
	// Output: 1s 2s 4s 8s 16s 32s 1m0s dead
}

// Types that differ have complete settings of their own. All other types use the defaults.
func ExampleSettings() {
	reports := holdfast.TypeSettings{Policy: holdfast.DefaultPolicy(), Timeout: 2 * time.Hour, Queue: "slow"}
	reports.Policy.MaxAttempts = 3
	settings := holdfast.Settings{Types: map[string]holdfast.TypeSettings{"report": reports}}
	for _, name := range []string{"report", "mail"} {
		s := settings.For(name)
		fmt.Println(name, s.Queue, s.Policy.MaxAttempts, s.Timeout)
	}
	// Output:
	// report slow 3 2h0m0s
	// mail default 10 0s
}

// Settle decides the outcome of an attempt from the error of its handler.
func ExampleSettle() {
	busy := errors.New("the target is busy")
	task := holdfast.Task{ID: 42, State: holdfast.Running, Attempt: 3, Failures: 2, MaxAttempts: 4, CreatedAt: time.Now()}
	for _, result := range []error{
		nil,
		busy,
		holdfast.RetryAfter(time.Minute, busy),
		holdfast.Defer(time.Minute, busy),
		holdfast.Permanent(busy),
		holdfast.Cancel(busy),
	} {
		move, err := holdfast.Settle(task, holdfast.Returned(result), time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(move.Event, move.To, "failures", move.Failures, "next attempt", move.NextAttempt)
	}
	// Output:
	// complete done failures 2 next attempt 3
	// retry ready failures 3 next attempt 4
	// retry ready failures 3 next attempt 4
	// defer ready failures 2 next attempt 4
	// give_up dead failures 3 next attempt 3
	// cancel cancelled failures 2 next attempt 3
}
