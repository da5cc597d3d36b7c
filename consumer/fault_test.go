package consumer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An error for which the worker is at fault halves its limit, at most once a second, down to one task. The limit grows
// again with time, more slowly if errors recur. The status shows the error for a while.
func TestTroubleLowersTheIntakeForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCapacity(16)
		defer c.fault.stop()
		fail := func(want int) {
			t.Helper()
			if most, _ := c.faulty(errors.New("too many open files")); most != want {
				t.Errorf("after an error the limit is %d, want %d", most, want)
			}
		}
		pass := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if free := c.free(); free != want {
				t.Errorf("%s later the limit is %d, want %d", d, free, want)
			}
		}
		if c.fault.current() != nil || c.free() != 16 {
			t.Errorf("before any error: fault %v, %d free", c.fault.current(), c.free())
		}
		c.used = 16
		fail(8)
		fail(8) // in the same second
		c.used = 0
		pass(999*time.Millisecond, 8)
		pass(time.Millisecond, 16)
		if c.fault.current() == nil {
			t.Error("no fault a second after the error")
		}
		c.used = 16
		fail(8)
		c.used = 0
		pass(1999*time.Millisecond, 8) // longer than the first wait
		pass(time.Millisecond, 16)
		c.used = 1
		fail(1)
		c.used = 0
		pass(3999*time.Millisecond, 1)
		for _, want := range []int{2, 4, 8, 16} {
			pass(4*time.Second, want)
		}
		time.Sleep(faultVisible)
		if err := c.fault.current(); err != nil {
			t.Errorf("fault after %s: %v", faultVisible, err)
		}
	})
}

// Successes in a row raise the limit long before the wait ends, so that a few failing tasks do not slow down the
// others. An error restarts the count.
func TestSuccessesRaiseTheIntake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCapacity(16)
		defer c.fault.stop()
		trouble := errors.New("too many open files")
		for range 10 { // until a wait is 30 s
			c.add(2)
			c.faulty(trouble)
			c.add(-2)
			time.Sleep(faultCutInterval + time.Millisecond)
			synctest.Wait()
		}
		for done, want := range []int{1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16} {
			if free := c.free(); free != want {
				t.Errorf("after %d successes the limit is %d, want %d", done, free, want)
			}
			c.succeeded()
		}
		c.add(8)
		c.faulty(trouble)
		c.add(-8)
		for range 5 {
			for range 3 {
				c.succeeded()
			}
			c.faulty(trouble) // in the same second
		}
		if free := c.free(); free != 4 {
			t.Errorf("with errors in between the limit is %d, want 4", free)
		}
	})
}

// A waiting page gets capacity as soon as the limit has grown, even if no task ends.
func TestTheIntakeGrowsBackByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCapacity(4)
		defer c.fault.stop()
		c.used = 4
		c.faulty(errors.New("no buffer space available"))
		c.used = 2
		began := time.Now()
		if n := c.reserve(t.Context(), 1, 10, 0, rank{}); n != 2 || time.Since(began) != faultWait {
			t.Errorf("capacity for %d tasks after %s", n, time.Since(began))
		}
	})
}
