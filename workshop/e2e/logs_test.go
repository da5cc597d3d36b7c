package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// leftOut matches the field with the number of lines that were left out.
var leftOut = regexp.MustCompile(`left_out=(\d+)`)

// During an outage of the database, the log reports the outage with a limited number of lines. Too many lines are hard
// to read and could fill the disk.
func TestAnOutageFillsNoLog(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	const perSecond = 100
	w := newWorld(t)
	w.lease = shortLease()
	outage := w.lease + time.Second
	proxy, through := proxied(t, w.databaseURL)
	tg := newTarget(t, func(c call) int {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-c.ctx.Done():
		}
		return 200
	})
	p := w.serve(t, []string{"DATABASE_URL=" + through})
	w.enqueue(t, 2000, httpTask(tg))
	tg.await(t, "more than 100 calls have begun", func(calls []call) bool { return len(calls) > 100 })
	before, began := len(p.tail(1<<20)), time.Now()
	proxy.Refuse()
	<-time.After(outage)
	proxy.Heal()
	w.awaitCount(t, holdfast.Done, 2000)
	p.signal(syscall.SIGTERM)
	p.exit()
	took := time.Since(began)

	lines, omitted := p.tail(1 << 20)[before:], 0
	for _, found := range leftOut.FindAllStringSubmatch(strings.Join(lines, "\n"), -1) {
		n, _ := strconv.Atoi(found[1])
		omitted += n
	}
	t.Logf("%d lines were logged and %d were left out in %s, with an outage of %s", len(lines), omitted, took, outage)
	if limit := perSecond * int(took/time.Second+1); len(lines) > limit {
		t.Errorf("%d lines, want at most %d; the last lines:\n%s", len(lines), limit, strings.Join(lines[len(lines)-50:], "\n"))
	}
	if omitted == 0 {
		t.Error("no line has the number of lines that were left out")
	}
	for _, text := range []string{"lease not renewed", "stopped"} {
		if !p.logged(text) {
			t.Errorf("no line contains %q", text)
		}
	}
}
