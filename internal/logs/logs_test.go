package logs

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
)

func setUp() (logrus.FieldLogger, *test.Hook) {
	user := logrus.New()
	user.SetOutput(io.Discard)
	hook := test.NewLocal(user)
	return Limited(user.WithField("app", "mine")), hook
}

// appeared returns the lines since the last call, as messages and counts.
func appeared(hook *test.Hook) string {
	var lines []string
	for _, entry := range hook.AllEntries() {
		text := entry.Message
		if n, ok := entry.Data[leftOutKey]; ok {
			text += fmt.Sprintf("+%v", n)
		}
		lines = append(lines, text)
	}
	hook.Reset()
	return strings.Join(lines, " ")
}

func expect(t *testing.T, hook *test.Hook, want string) {
	t.Helper()
	if got := appeared(hook); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// later sleeps in a synctest bubble and then waits until all goroutines are blocked.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestARepeatedMessageAppearsOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := setUp()
		for range 2500 {
			log.WithField("tasks", 7).Warn("a")
			later(time.Millisecond - time.Microsecond/2) // so that no line coincides with a tick
		}
		expect(t, hook, "a a+1000 a+1000")
		log.Info("b")
		later(interval)
		expect(t, hook, "b a+496") // the last line appears without another one
		later(time.Minute)
		log.Warn("a") // after a long time, the line counts as the first one
		expect(t, hook, "a")
	})
}

// Lines about the tasks of one group appear once a minute, whatever their other fields are. Each group has its own
// minute.
func TestALineOfAGroupAppearsOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := setUp()
		task := 0
		die := func(group string) {
			task++
			log.WithFields(logrus.Fields{"task": task, "cause": fmt.Sprintf("cause %d", task), groupKey: group}).Warn(group)
		}
		for range 10_000 {
			die("a")
			later(3 * time.Millisecond)
		}
		die("b")
		log.Info("c")
		expect(t, hook, "a b c")
		later(31 * time.Second)
		expect(t, hook, "a+9998")
		die("a")
		later(30 * time.Second)
		die("b")
		expect(t, hook, "b")
		Flush(log)
		expect(t, hook, "a")
		later(3 * time.Minute)
		die("a")
		expect(t, hook, "a")
	})
}

// The newest line appears last, and at most a second after it was logged.
func TestTheLastLineOfEachKindAppearsInItsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := setUp()
		for range 3 {
			log.Warn("lost")
			later(interval / 10)
			log.Info("connected")
			later(interval / 10)
		}
		log.Warn("lost")
		expect(t, hook, "lost connected")
		later(interval)
		expect(t, hook, "connected+1 lost+2")
		log.Warn("lost")
		log.Info("connected")
		later(interval)
		expect(t, hook, "lost connected")
		later(time.Minute)
		expect(t, hook, "")
	})
}

// Flush leaves no line and no goroutine behind, even while lines are logged.
func TestFlushLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := setUp()
		var senders sync.WaitGroup
		for range 3 {
			senders.Go(func() {
				for range 40 {
					log.Warn("a")
					time.Sleep(interval / 20)
					Flush(log)
				}
			})
		}
		senders.Wait()
		hook.Reset()
		for range 3 {
			log.Warn("b")
		}
		Flush(log)
		expect(t, hook, "b b+1")
		if l := limitOf(log); l.next != nil {
			t.Error("a tick is still scheduled")
		}
		Flush(log)
		later(time.Minute)
		expect(t, hook, "")
	})
}

// Lines about different tasks, workers or queues all appear, but thousands of them do not fill the log.
func TestIdentitiesAppearUpToALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := setUp()
		for _, key := range []string{"task", "worker", "queue"} {
			log.WithField(key, int64(1)).Warn("x")
			log.WithField(key, int64(2)).Warn("x")
			log.WithField(key, int64(2)).Warn("x")
		}
		if n := len(hook.AllEntries()); n != 6 {
			t.Errorf("%d lines of 6 identities appeared", n)
		}
		Flush(log)
		hook.Reset()
		const seconds, each = 5, 2000
		for range seconds {
			for task := range each {
				log.WithField("task", task).Error("y")
				time.Sleep(interval / each)
			}
		}
		Flush(log)
		entries := hook.AllEntries()
		total, tasks := len(entries), make(map[any]bool)
		for _, entry := range entries {
			n, _ := entry.Data[leftOutKey].(int)
			total += n
			tasks[entry.Data["task"]] = true
		}
		if total != seconds*each {
			t.Errorf("%d of %d lines appeared or were counted", total, seconds*each)
		}
		if len(tasks) < maxPerMessage || len(entries) > (seconds+1)*(maxPerMessage+2) {
			t.Errorf("%d lines with %d identities appeared in %d seconds", len(entries), len(tasks), seconds)
		}
	})
}

func TestDifferentMessagesAllAppear(t *testing.T) {
	t.Parallel()
	log, hook := setUp()
	log.Warn("a")
	log.Error("a")
	log.Warn("b")
	log.WithField("queue", "x").Warn("a")
	log.WithField("queue", "y").Warn("a")
	log.WithError(errors.New("read rows: no route")).Warn("a")
	log.WithError(errors.New("read rows: refused")).Warn("a")
	expect(t, hook, "a a b a a a a")
	// Numbers do not distinguish kinds: counts, durations, times, ports.
	log.WithField("queue", "x").WithField("tasks", 12).WithField("took", time.Second).WithField("at", time.Now()).Warn("n")
	log.WithField("queue", "x").WithField("tasks", 13).WithField("took", time.Minute).WithField("at", time.Now()).Warn("n")
	expect(t, hook, "n")
	log.WithError(errors.New("read tcp 127.0.0.1:4711->127.0.0.1:5432: session 17 was reset")).Warn("c")
	log.WithError(errors.New("dial tcp 127.0.0.1:5432: session 18 was reset")).Warn("c")
	expect(t, hook, "c")
}

// Every line appears or is counted, in any order of lines.
func TestEveryLineAppearsOrIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := setUp()
		const senders, each, seconds = 8, 5000, 5
		var all sync.WaitGroup
		for sender := range senders {
			all.Go(func() {
				for i := range each {
					log.WithField("kind", fmt.Sprint((i*7+sender)%5)).Warn("x")
					time.Sleep(seconds * time.Second / each)
				}
			})
		}
		all.Wait()
		Flush(log)
		entries := hook.AllEntries()
		total := len(entries)
		for _, entry := range entries {
			if n, ok := entry.Data[leftOutKey].(int); ok {
				total += n
			}
		}
		if len(entries) > 5*(seconds+3) {
			t.Errorf("%d lines of 5 kinds appeared in %d seconds", len(entries), seconds)
		}
		if total != senders*each {
			t.Errorf("%d of %d lines appeared or were counted", total, senders*each)
		}
		hook.Reset()
		Flush(log)
		expect(t, hook, "")
	})
}

func TestALineIsPassedOnUnchanged(t *testing.T) {
	t.Parallel()
	user := logrus.New()
	user.SetOutput(io.Discard)
	user.SetReportCaller(true)
	hook := test.NewLocal(user)
	log := Limited(user.WithField("app", "mine"))
	log.Debug("the level of the other logger decides")
	log.WithField("queue", "x").WithError(io.EOF).Warnf("n is %d", 5)
	if n := len(hook.AllEntries()); n != 1 {
		t.Fatalf("%d lines", n)
	}
	e := hook.LastEntry()
	if e.Message != "n is 5" || e.Level != logrus.WarnLevel || e.Data["app"] != "mine" || e.Data["queue"] != "x" || e.Data["error"] != io.EOF || len(e.Data) != 3 {
		t.Errorf("got %+v", e)
	}
	if e.Caller == nil || !strings.HasSuffix(e.Caller.File, "logs_test.go") {
		t.Errorf("the caller is %+v", e.Caller)
	}
	user.SetLevel(logrus.DebugLevel)
	log.Debug("and may change")
	if hook.LastEntry().Message != "and may change" {
		t.Errorf("got %+v", hook.LastEntry())
	}
}

func TestALimitIsShared(t *testing.T) {
	t.Parallel()
	log, hook := setUp()
	for range 3 {
		Limited(log.WithField("part", "one")).Warn("a")
	}
	Limited(log).Warn("a")
	expect(t, hook, "a a")
	Limited(nil).Error("discarded")
	Flush(Limited(nil))
}

// Lines that are all different do not use more and more memory.
func TestKindsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := setUp()
		for i := range 3 * maxKinds {
			log.Warn(fmt.Sprintf("message %c%d", 'a'+i%26, i))
		}
		l := limitOf(log)
		if n := len(hook.AllEntries()); n != 3*maxKinds || len(l.kinds) > maxKinds || len(l.kindsOf) > maxKinds {
			t.Errorf("%d lines appeared; %d kinds of %d messages are stored", n, len(l.kinds), len(l.kindsOf))
		}
		later(2 * interval)
		log.Warn("later")
		if len(l.kinds) != 1 || len(l.kindsOf) != 1 {
			t.Errorf("later %d kinds of %d messages are stored", len(l.kinds), len(l.kindsOf))
		}
	})
}
