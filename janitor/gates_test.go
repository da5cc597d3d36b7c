package janitor

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/rig"
)

// releaseRecorder is a store that records the times of the calls of ReleaseBlocked.
type releaseRecorder struct {
	Store
	released store.Released
	err      error

	mu    sync.Mutex
	looks []time.Time
}

func (r *releaseRecorder) ReleaseBlocked(context.Context, int) (store.Released, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks = append(r.looks, time.Now())
	return r.released, r.err
}

// If a step of ReleaseBlocked fails, the janitor still dispatches the tasks that other steps have released, and comes
// back later.
func TestAFailedReleaseDispatchesItsTasks(t *testing.T) {
	t.Parallel()
	tally := &rig.Tally{}
	r := &releaseRecorder{released: store.Released{Tasks: 3}, err: errors.New("open gates: broken")}
	j, ctx, end := offlineJanitor(t, r)
	defer end()
	j.o.Observer = tally
	look := soonestLook
	if next, _, err := j.release(ctx, &look); !errors.Is(err, r.err) || next <= 0 || len(r.looks) != 1 {
		t.Errorf("the next release is after %s, %v, %d calls; want the error and a pause", next, err, len(r.looks))
	}
	if got := tally.Of(holdfast.ObservedReleased); got != 3 {
		t.Errorf("%d released tasks are observed, want 3", got)
	}
}

// While permits are in use, a janitor soon notices that an attempt has ended, even if no task waited at its last pass.
// Another process may have blocked a task since then.
func TestLooksForPermitsThatBecomeFree(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		released store.Released
		want     time.Duration // maximum time between two passes
	}{
		"nothing to do":               {store.Released{Next: -1}, releaseEvery},
		"permits in use":              {store.Released{Next: -1, PermitsInUse: true}, latestLook},
		"permits in use, rate":        {store.Released{Next: time.Minute, PermitsInUse: true}, latestLook},
		"tasks wait":                  {store.Released{Next: time.Hour, Waiting: true, PermitsInUse: true}, latestLook},
		"a task may start soon":       {store.Released{Next: 30 * time.Millisecond, PermitsInUse: true}, 30 * time.Millisecond},
		"a task may start much later": {store.Released{Next: time.Minute}, releaseEvery},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &releaseRecorder{released: test.released}
				j, ctx, end := offlineJanitor(t, r)
				go j.releaseLoop(ctx)
				time.Sleep(10 * time.Second)
				end()
				synctest.Wait()
				longest := time.Duration(0)
				for i := range r.looks[1:] {
					longest = max(longest, r.looks[i+1].Sub(r.looks[i]))
				}
				if longest != test.want {
					t.Errorf("at most %s between two looks, want %s", longest, test.want)
				}
			})
		})
	}
}

// Duties that read many tasks begin some time after their process, and not together.
func TestChecksBeginLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const janitors, interval = 50, 15 * time.Second
		began := time.Now()
		var mu sync.Mutex
		var firsts []time.Duration
		ctx, end := context.WithCancel(t.Context())
		for range janitors {
			j, _, _ := offlineJanitor(t, &releaseRecorder{})
			first := true
			go j.repeatLater(ctx, "check", interval, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if first {
					firsts, first = append(firsts, time.Since(began)), false
				}
				return nil
			})
		}
		time.Sleep(interval)
		synctest.Wait()
		early := 0
		for _, at := range firsts {
			if at < interval/10 {
				early++
			}
		}
		if len(firsts) != janitors || early > janitors/2 {
			t.Errorf("%d of %d janitors have made a check within %s, %d of them in the first tenth", len(firsts), janitors, interval, early)
		}
		end()
		synctest.Wait()
	})
}
