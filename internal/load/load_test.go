package load

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

func options() Options {
	return Options{Payload: 64, Batch: 1000, Ahead: 3000, WarmUp: time.Second, For: 2 * time.Second, Patience: 30 * time.Second}
}

// bubble runs a test in a synctest bubble, which has its own clock. The test fails if a goroutine does not end.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// must returns a function that returns a value and fails the test if there is an error.
func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(got T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
}

func TestBulkAndDrainCountTasksAndTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{fills: 10 * ms, runs: ms, starts: 500 * ms}
		bulk := must[Rate](t)(options().Bulk(t.Context(), q, 2500))
		if want := (Rate{2500, 30 * ms}); bulk != want {
			t.Errorf("bulk: %+v, want %+v", bulk, want)
		}
		if want := []int{1000, 1000, 500}; !slices.Equal(q.batches, want) {
			t.Errorf("batches of %v, want %v", q.batches, want)
		}
		drain := must[Rate](t)(options().Drain(t.Context(), q, 2500))
		if want := (Rate{2500, 3000 * ms}); drain != want {
			t.Errorf("drain: %+v, want %+v", drain, want)
		}
		if got := drain.PerSecond(); got != 2500.0/3 {
			t.Errorf("drain: %v per second, want %v", got, 2500.0/3)
		}
	})
}

func TestBatchesCountTheLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{fills: 300 * ms}
		if got, want := must[Rate](t)(options().Batches(t.Context(), q)), (Rate{7000, 2100 * ms}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestSinglesCountEveryCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{puts: 5 * ms}
		if got, want := must[Rate](t)(options().Singles(t.Context(), q, 4)), (Rate{1600, 2 * time.Second}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestSteadyMeasuresAfterTheWarmUpAndIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{fills: 10 * ms, runs: ms, starts: 500 * ms}
		o := options()
		began := time.Now().Add(q.starts + q.runs) // when the first task is run
		var before, after time.Duration
		got := must[Rate](t)(o.Steady(t.Context(), q, func() { before = time.Since(began) }, func() { after = time.Since(began) }))
		if before != o.WarmUp || after != o.WarmUp+o.For {
			t.Errorf("measured from %s to %s", before, after)
		}
		if got.Took != o.For || got.Tasks < 1999 || got.Tasks > 2001 {
			t.Errorf("%+v, want about 2000 tasks in %s: a task takes a millisecond", got, o.For)
		}
		if q.most <= o.Ahead || q.most > o.Ahead+o.Batch {
			t.Errorf("at most %d tasks waited, want more than %d and at most %d", q.most, o.Ahead, o.Ahead+o.Batch)
		}
	})
}

func TestSteadyWithoutATaskIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for last, want := range map[int]string{0: "the first task was not run in 30s", 10: "no task was run in 30s"} {
			q := &memory{fills: 10 * ms, runs: ms, lose: func(n int) bool { return n >= last }}
			if _, err := options().Steady(t.Context(), q, func() {}, func() {}); err == nil || err.Error() != want {
				t.Errorf("%d tasks arrive: got %v, want %s", last, err, want)
			}
		}
	})
}

func TestSteadyWaitsForATask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{fills: 10 * ms, runs: 5 * time.Second}
		got := must[Rate](t)(options().Steady(t.Context(), q, func() {}, func() {}))
		if got.Tasks != 1 || got.Took < 3900*ms || got.Took > 4100*ms {
			t.Errorf("%+v, want the second task, 4s after the warm-up", got)
		}
	})
}

// The first burst, which waits for the start of the worker, and the pauses are not measured.
func TestBurstsCountOnlyTheTimeInBursts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{fills: 10 * ms, runs: ms, starts: 10 * time.Second}
		before := 0
		got := must[Rate](t)(options().Bursts(t.Context(), q, 500, 500*ms, func() { before = q.stored }))
		if before != 500 {
			t.Errorf("the measurement started after %d tasks, want 500", before)
		}
		if want := (Rate{1000, 2 * 510 * ms}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestErrorOfFillStopsTheMeasurement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		full := errors.New("the disk is full")
		began := time.Now()
		q := &memory{fills: 10 * ms, runs: ms, failFill: func(n int) error {
			if n == 2 {
				return full
			}
			return nil
		}}
		_, err := options().Steady(t.Context(), q, func() { t.Error("Steady measured") }, func() {})
		if !errors.Is(err, full) || err.Error() != "store tasks: the disk is full" {
			t.Errorf("steady: got %v", err)
		}
		if took := time.Since(began); took > 100*ms {
			t.Errorf("Steady stopped after %s, want at most 100ms", took)
		}
		q.batches = nil
		if _, err := options().Bulk(t.Context(), q, 5000); !errors.Is(err, full) || len(q.batches) != 3 {
			t.Errorf("bulk: got %v after %d batches", err, len(q.batches))
		}
		q.batches = nil
		if _, err := options().Batches(t.Context(), q); !errors.Is(err, full) || len(q.batches) != 3 {
			t.Errorf("batches: got %v after %d batches", err, len(q.batches))
		}
	})
}

func TestFirstErrorOfPutEndsAllCallers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		full := errors.New("the disk is full")
		q := &memory{puts: 5 * ms, failPut: func(n int) error {
			if n >= 100 {
				return full
			}
			return nil
		}}
		if _, err := options().Singles(t.Context(), q, 16); !errors.Is(err, full) || err.Error() != "store a task: the disk is full" {
			t.Errorf("singles: got %v", err)
		}
		if q.calls > 100+16 {
			t.Errorf("%d calls of Put, want at most %d", q.calls, 100+16)
		}
		q.calls = 0
		if _, _, err := options().Delayed(t.Context(), q, 1000, 1000, time.Second); !errors.Is(err, full) || strings.Count(err.Error(), "full") != 1 {
			t.Errorf("delayed: got %v", err)
		}
		q.calls = 90
		if _, err := options().PickUp(t.Context(), q, 20, 20*ms); !errors.Is(err, full) || strings.Count(err.Error(), "full") != 1 {
			t.Errorf("pick-up: got %v", err)
		}
	})
}

func TestMissingTasksAreAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{runs: ms, lose: func(n int) bool { return n >= 7 }}
		must[Rate](t)(options().Bulk(t.Context(), q, 10))
		began := time.Now()
		if _, err := options().Drain(t.Context(), q, 10); err == nil || err.Error() != "7 of 10 tasks were run, and none for 30s" {
			t.Errorf("drain: got %v", err)
		}
		if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("drain returned after %s, want about 30s", took)
		}
		if _, err := options().PickUp(t.Context(), q, 10, 20*ms); err == nil || err.Error() != "the first task was not run in 30s" {
			t.Errorf("pick-up: got %v", err)
		}
		q.stored = 0
		if _, _, err := options().Delayed(t.Context(), q, 10, 100, time.Second); err == nil || err.Error() != "6 of 10 tasks were run, and none for 30s" {
			t.Errorf("delayed: got %v", err)
		}
		q.stored = 0
		if _, err := options().Bursts(t.Context(), q, 10, time.Second, func() {}); err == nil || err.Error() != "7 of 10 tasks were run, and none for 30s" {
			t.Errorf("bursts: got %v", err)
		}
	})
}

func TestSlowTasksAreNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		q := &memory{runs: o.Patience - time.Second}
		must[Rate](t)(o.Bulk(t.Context(), q, 5))
		if got := must[Rate](t)(o.Drain(t.Context(), q, 5)); got.Took != 5*q.runs {
			t.Errorf("%+v, want %s", got, 5*q.runs)
		}
	})
}

func TestEndOfTheWorkerIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lost := errors.New("the connection was lost")
		for _, c := range []struct {
			ends error
			want string
		}{{nil, "the worker ended by itself"}, {lost, lost.Error()}} {
			q := &memory{work: func(context.Context) error { return c.ends }}
			if _, err := options().Drain(t.Context(), q, 10); err == nil || err.Error() != c.want {
				t.Errorf("drain: got %v, want %s", err, c.want)
			}
			if _, err := options().Steady(t.Context(), q, func() {}, func() {}); err == nil || err.Error() != c.want {
				t.Errorf("steady: got %v, want %s", err, c.want)
			}
		}
		q := &memory{work: func(ctx context.Context) error {
			<-ctx.Done()
			return lost
		}}
		if _, err := options().Drain(t.Context(), q, 10); !errors.Is(err, lost) || !strings.Contains(err.Error(), "0 of 10") {
			t.Errorf("want both errors, got %v", err)
		}
	})
}

func TestPickUpMeasuresFromPutToTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{starts: time.Second, puts: 2 * ms, runs: 3 * ms}
		got := must[[]time.Duration](t)(options().PickUp(t.Context(), q, 50, 20*ms))
		if len(got) != 50 || got[0] != 5*ms || got[49] != 5*ms {
			t.Errorf("got %v, want 50 times 5ms", got)
		}
	})
}

func TestDelayedMeasuresFromTheDueTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{starts: time.Second, puts: 2 * ms, runs: ms / 2}
		rate, lates, err := options().Delayed(t.Context(), q, 500, 1000, time.Second)
		if want := (Rate{500, 500 * ms}); err != nil || rate != want || len(lates) != 500 {
			t.Fatalf("%+v, %d times, %v", rate, len(lates), err)
		}
		if lates[0] < ms/2 || lates[499] > 2*ms {
			t.Errorf("the tasks started from %s to %s late, want from %s to %s", lates[0], lates[499], ms/2, 2*ms)
		}
	})
}

// If the queue stores tasks slowly, they become due slowly and are not treated as late.
func TestDelayedSlowsDownWithSlowStoring(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := &memory{puts: 100 * ms, runs: ms / 2}
		rate, lates, err := options().Delayed(t.Context(), q, 320, 1000, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := rate.PerSecond(); got < 155 || got > 175 {
			t.Errorf("%.1f per second became due, want 160, as many as 16 callers store", got)
		}
		if most := lates[len(lates)-1]; most > 10*ms { // 16 concurrent calls of half a millisecond each
			t.Errorf("a task started %s late, want at most 10ms", most)
		}
	})
}

func TestCancellationEndsEveryMeasurement(t *testing.T) {
	stop := errors.New("enough")
	o := options()
	for name, measure := range map[string]func(context.Context, Queue) error{
		"bulk":   func(ctx context.Context, q Queue) error { _, err := o.Bulk(ctx, q, 1e9); return err },
		"drain":  func(ctx context.Context, q Queue) error { _, err := o.Drain(ctx, q, 1e9); return err },
		"steady": func(ctx context.Context, q Queue) error { _, err := o.Steady(ctx, q, func() {}, func() {}); return err },
		"bursts": func(ctx context.Context, q Queue) error {
			_, err := o.Bursts(ctx, q, 500, time.Second, func() {})
			return err
		},
		"batches": func(ctx context.Context, q Queue) error { _, err := o.Batches(ctx, q); return err },
		"singles": func(ctx context.Context, q Queue) error { _, err := o.Singles(ctx, q, 16); return err },
		"pick-up": func(ctx context.Context, q Queue) error { _, err := o.PickUp(ctx, q, 1e6, 20*ms); return err },
		"delayed": func(ctx context.Context, q Queue) error {
			_, _, err := o.Delayed(ctx, q, 1e6, 1000, time.Second)
			return err
		},
	} {
		for _, after := range []time.Duration{o.WarmUp / 2, o.WarmUp + o.For/4} {
			t.Run(name+" after "+after.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					began := time.Now()
					time.AfterFunc(after, func() { cancel(stop) })
					err := measure(ctx, &memory{fills: 10 * ms, puts: 2 * ms, runs: ms})
					if !errors.Is(err, stop) || time.Since(began) > after+100*ms {
						t.Errorf("got %v after %s", err, time.Since(began))
					}
				})
			})
		}
	}
}

func TestPayloadsAreJSONOfTheConfiguredSize(t *testing.T) {
	t.Parallel()
	for _, length := range []int{32, 200, 5000} {
		o := Options{Payload: length}
		at := time.Unix(1_800_000_000, 123456789)
		for _, payload := range [][]byte{o.payloads(1)[0], o.stamped(at)} {
			if len(payload) != length || !json.Valid(payload) {
				t.Errorf("got %d bytes, want %d bytes of valid JSON: %s", len(payload), length, payload)
			}
		}
		if got, err := stamp(o.stamped(at)); err != nil || !got.Equal(at) {
			t.Errorf("%s, %v", got, err)
		}
	}
	if _, err := stamp([]byte(`"hello"`)); err == nil {
		t.Error("a payload without a time stamp was accepted")
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i))
	}
	for _, c := range []struct {
		list []time.Duration
		p    float64
		want time.Duration
	}{
		{nil, 50, 0}, {[]time.Duration{7}, 0, 7}, {[]time.Duration{7}, 99, 7}, {hundred, 0, 0}, {hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 99},
		{[]time.Duration{1, 2, 3}, 50, 2},
	} {
		if got := Percentile(c.list, c.p); got != c.want {
			t.Errorf("%g of %d: %d, want %d", c.p, len(c.list), got, c.want)
		}
	}
}
