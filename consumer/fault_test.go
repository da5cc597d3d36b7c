package consumer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Trouble of the worker's own halves what it takes, once a second, and never to nothing. The limit grows back with time, more
// slowly if the trouble returns, and the worker says so as long as it lasts.
func TestTroubleLowersTheIntakeForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(16)
		defer r.fault.stop()
		fail := func(want int) {
			t.Helper()
			if most, _ := r.faulty(errors.New("too many open files")); most != want {
				t.Errorf("after an error the worker takes %d, want %d", most, want)
			}
		}
		pass := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if free := r.free(); free != want {
				t.Errorf("after %s more it takes %d, want %d", d, free, want)
			}
		}
		if r.fault.current() != nil || r.free() != 16 {
			t.Errorf("at first: %v, %d free", r.fault.current(), r.free())
		}
		r.held = 16
		fail(8)
		fail(8) // in the same second
		r.held = 0
		pass(999*time.Millisecond, 8)
		pass(time.Millisecond, 16)
		if r.fault.current() == nil {
			t.Error("the trouble has ended a second after the error")
		}
		r.held = 16
		fail(8)
		r.held = 0
		pass(1999*time.Millisecond, 8) // longer than the first time
		pass(time.Millisecond, 16)
		r.held = 1
		fail(1)
		r.held = 0
		pass(3999*time.Millisecond, 1)
		for _, want := range []int{2, 4, 8, 16} {
			pass(4*time.Second, want)
		}
		time.Sleep(faultShown)
		if err := r.fault.current(); err != nil {
			t.Errorf("it still says: %v", err)
		}
	})
}

// Successes in a row raise the limit again long before the wait is over, so a few tasks with trouble do not keep a worker
// from the others. Trouble in between starts the count again.
func TestSuccessesRaiseTheIntake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(16)
		defer r.fault.stop()
		trouble := errors.New("too many open files")
		for range 10 { // until a wait is half a minute
			r.add(2)
			r.faulty(trouble)
			r.add(-2)
			time.Sleep(faultCut + time.Millisecond)
			synctest.Wait()
		}
		for done, want := range []int{1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16} {
			if free := r.free(); free != want {
				t.Errorf("after %d successes the worker takes %d, want %d", done, free, want)
			}
			r.succeeded()
		}
		r.add(8)
		r.faulty(trouble)
		r.add(-8)
		for range 5 {
			for range 3 {
				r.succeeded()
			}
			r.faulty(trouble) // in the same second
		}
		if free := r.free(); free != 4 {
			t.Errorf("with trouble in between the worker takes %d, want 4", free)
		}
	})
}

// A waiting page takes its places as soon as the limit has grown, though no task has ended.
func TestTheIntakeGrowsBackByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(4)
		defer r.fault.stop()
		r.held = 4
		r.faulty(errors.New("no buffer space available"))
		r.held = 2
		began := time.Now()
		if n := r.reserve(t.Context(), 1, 10, 0, ordinary); n != 2 || time.Since(began) != faultWait {
			t.Errorf("%d places after %s", n, time.Since(began))
		}
	})
}
