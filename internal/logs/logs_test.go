package logs

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
)

// clock is set by the test.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func setUp(t *testing.T) (logrus.FieldLogger, *test.Hook, *clock) {
	t.Helper()
	user := logrus.New()
	user.SetOutput(io.Discard)
	hook := test.NewLocal(user)
	c := &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return limited(user.WithField("app", "mine"), c.now), hook, c
}

// shown are the lines that appeared since it was last asked, as message and count.
func shown(hook *test.Hook) string {
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
	if got := shown(hook); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestARepeatedMessageAppearsOnceASecond(t *testing.T) {
	t.Parallel()
	log, hook, clock := setUp(t)
	for range 2500 {
		log.WithField("task", 7).Warn("a")
		clock.add(time.Millisecond)
	}
	expect(t, hook, "a a+999 a+999")
	clock.add(time.Minute)
	log.Info("b") // another line brings the last one of what has ended
	expect(t, hook, "a+498 b")
	clock.add(time.Minute)
	log.Warn("a") // long after, it is a first line again
	expect(t, hook, "a")
}

func TestDifferentMessagesAllAppear(t *testing.T) {
	t.Parallel()
	log, hook, _ := setUp(t)
	log.Warn("a")
	log.Error("a")
	log.Warn("b")
	log.WithField("queue", "x").Warn("a")
	log.WithField("queue", "y").Warn("a")
	log.WithError(errors.New("read rows: no route")).Warn("a")
	log.WithError(errors.New("read rows: refused")).Warn("a")
	expect(t, hook, "a a b a a a a")
	// Numbers do not make a kind: ids, counts, durations, ports.
	log.WithField("queue", "x").WithField("tasks", 12).WithField("took", time.Second).WithField("at", time.Now()).Warn("n")
	log.WithField("queue", "x").WithField("tasks", 13).WithField("took", time.Minute).WithField("at", time.Now()).Warn("n")
	expect(t, hook, "n")
	log.WithError(errors.New("read tcp 127.0.0.1:4711->127.0.0.1:5432: session 17 was reset")).Warn("c")
	log.WithError(errors.New("dial tcp 127.0.0.1:5432: session 18 was reset")).Warn("c")
	expect(t, hook, "c")
}

// Every line is shown or counted, whatever comes in which order.
func TestEveryLineIsShownOrCounted(t *testing.T) {
	t.Parallel()
	log, hook, clock := setUp(t)
	const senders, each = 8, 5000
	var all sync.WaitGroup
	for sender := range senders {
		all.Go(func() {
			for i := range each {
				log.WithField("kind", fmt.Sprint((i*7+sender)%5)).Warn("x")
				if i%10 == 0 {
					clock.add(time.Millisecond)
				}
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
	if seconds := senders * each / 10 / 1000; len(entries) > 5*(seconds+3) {
		t.Errorf("%d lines of 5 kinds appeared in %d seconds", len(entries), seconds)
	}
	if total != senders*each {
		t.Errorf("%d of %d lines appeared or were counted", total, senders*each)
	}
	hook.Reset()
	Flush(log)
	expect(t, hook, "")
}

func TestALineIsPassedOnAsItIs(t *testing.T) {
	t.Parallel()
	user := logrus.New()
	user.SetOutput(io.Discard)
	user.SetReportCaller(true)
	hook := test.NewLocal(user)
	log := Limited(user.WithField("app", "mine"))
	log.Debug("the user's level decides")
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
	log, hook, _ := setUp(t)
	for range 3 {
		Limited(log.WithField("part", "one")).Warn("a")
	}
	Limited(log).Warn("a")
	expect(t, hook, "a a")
	Limited(nil).Error("nobody reads it")
	Flush(Limited(nil))
}

// A program that logs something new in every line is not the cause of a leak.
func TestKindsAreForgotten(t *testing.T) {
	t.Parallel()
	log, hook, clock := setUp(t)
	for i := range 3 * maxKinds {
		log.Warn(fmt.Sprintf("message %c%d", 'a'+i%26, i))
	}
	l := limitOf(log)
	if n := len(hook.AllEntries()); n != 3*maxKinds || len(l.kinds) > maxKinds {
		t.Errorf("%d lines appeared, %d kinds are known", n, len(l.kinds))
	}
	clock.add(2 * interval)
	log.Warn("later")
	if len(l.kinds) != 1 {
		t.Errorf("%d kinds are known later", len(l.kinds))
	}
}
