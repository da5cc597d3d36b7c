package console_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

// Without figures, every number is unknown. Figures of the present minute are in no chart, because the minute has not
// ended.
func TestChartsWithoutFigures(t *testing.T) {
	everywhere(t, func(w *world) {
		w.must(w.Store.AddFigures(w.Context(), []store.Figure{{Kind: store.FigureSucceeded, N: 4711}, {Kind: store.FigureReady}}))
		r := w.browser().get("/")
		for _, part := range []string{`id="n-in" title="what`, "–</dd>", "succeeded –", "no process has written figures", "Attempts per minute: succeeded unknown; failed unknown"} {
			if !strings.Contains(r.text, part) {
				w.Errorf("the overview lacks %q", part)
			}
		}
		if strings.Contains(r.text, "4,711") {
			w.Error("the overview shows a minute that has not ended")
		}
	})
}

func TestCharts(t *testing.T) {
	w := onFile(t, "/holdfast")
	now, err := w.Store.Now(w.Context())
	w.must(err)
	backendtest.Day(t, w.Store, now)
	b := w.browser()
	hour, day, other := b.get("/").text, b.get("/?range=1d").text, b.get("/?range=%22%3E%3Cscript%3E").text
	for _, c := range []struct {
		what, text string
		rows       int
		has        []string
	}{
		{"an hour", hour, 60, []string{`<a href="/holdfast/" aria-current="true">last hour</a>`, `<a href="/holdfast/?range=1d">last day</a>`, "60 min ago"}},
		{"a day", day, 144, []string{`<a href="/holdfast/">last hour</a>`, `<a href="/holdfast/?range=1d" aria-current="true">last day</a>`, "24 h ago", `class="gap"`, "no process has written figures"}},
		{"an unknown range", other, 60, []string{`aria-current="true">last hour`}},
	} {
		if rows := strings.Count(c.text, "<tr><td>"); rows != c.rows || strings.Count(c.text, `role="img"`) != 3 {
			t.Errorf("%s: the table has %d rows, want %d", c.what, rows, c.rows)
		}
		for _, part := range append(c.has, `id="n-recovered" title="tasks taken back from ended workers in the last 24 hours">96<`, `24 hours">3<`) {
			if !strings.Contains(c.text, part) {
				t.Errorf("%s: the page lacks %q", c.what, part)
			}
		}
		for _, unsafe := range []string{"<script>", "style="} {
			if strings.Contains(c.text, unsafe) {
				t.Errorf("%s: the page has %q", c.what, unsafe)
			}
		}
		if rate := regexp.MustCompile(`id="n-out"[^>]*>([^<]*)<`).FindStringSubmatch(c.text); rate == nil || !regexp.MustCompile(`^[234]\d(\.\d)?/s$`).MatchString(rate[1]) {
			t.Errorf("%s: the rate is %q", c.what, rate)
		}
	}
}

// All viewers share the charts of a minute.
func TestChartsAreComputedOnceAMinute(t *testing.T) {
	w := onFile(t, "")
	minute := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	first, err := w.console.Charts(w.Context(), minute, store.AllQueues, "1h")
	w.must(err)
	now, err := w.Store.Now(w.Context())
	w.must(err)
	backendtest.Day(t, w.Store, now)
	for _, later := range []time.Duration{time.Second, 59 * time.Second} {
		if again, err := w.console.Charts(w.Context(), minute.Add(later), store.AllQueues, "1h"); err != nil || again != first {
			t.Errorf("%s later, the charts were computed again: %v", later, err)
		}
	}
	if next, err := w.console.Charts(w.Context(), now, store.AllQueues, "1h"); err != nil || next == first {
		t.Errorf("in another minute, the charts are the same: %v", err)
	}
	mail, err := w.console.Charts(w.Context(), now, "mail", "1h")
	w.must(err)
	idle, err := w.console.Charts(w.Context(), now, "idle", "1h")
	w.must(err)
	if !strings.Contains(mail, "failed 4") || !strings.Contains(idle, "succeeded 0") || !strings.Contains(idle, "ready 0") {
		t.Errorf("the charts of a queue: %s\nof an idle queue: %s", mail, idle)
	}
	for range 110 { // queues without viewers
		if _, err := w.console.Charts(w.Context(), now, time.Now().String(), "1h"); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.console.ChartSets(); n > 100 {
		t.Errorf("the charts of %d queues are kept", n)
	}
}
