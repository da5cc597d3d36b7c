package console

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfastq/holdfast"
	plans "github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// functions returns the functions of the templates.
func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"term":        term,
		"asset":       func(name string) string { return c.o.Prefix + "/assets/" + name + "?" + c.assets[name].tag },
		"path":        c.path,
		"count":       count,
		"exact":       exact,
		"share":       share,
		"duration":    duration,
		"ago":         ago,
		"stamp":       stamp,
		"state":       stateView,
		"gate":        gateNow,
		"sparks":      sparks,
		"percent":     percent,
		"dict":        dict,
		"join":        func(list []string) string { return strings.Join(list, ", ") },
		"lower":       strings.ToLower,
		"rest":        func(query string) string { return search.Without(query, "-id") },
		"seconds":     func(n int64) string { return duration(time.Duration(n) * time.Second) },
		"clock":       clock,
		"event":       eventText,
		"rate":        rate,
		"rateMinutes": func() int { return rateMinutes },
	}
}

// path returns the path of a page. The parts after the first one are names, which it escapes.
func (c *Console) path(page string, names ...any) string {
	path := c.o.Prefix + page
	for _, name := range names {
		path += "/" + url.PathEscape(fmt.Sprint(name))
	}
	return path
}

// term returns a term of a search. It quotes a value that the search would not read as one.
func term(field, value string) string {
	if strings.ContainsFunc(value, func(r rune) bool { return r == '"' || unicode.IsSpace(r) }) {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
	return field + ":" + value
}

// dict returns a map for a template that takes several values.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has %d values", len(pairs))
	}
	values := make(map[string]any)
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i].(string)] = pairs[i+1]
	}
	return values, nil
}

// count returns a number as people read it: exact to 9,999, and then with three digits.
func count(value any) string {
	n, ok := number(value)
	switch {
	case !ok:
		return "–"
	case math.Abs(n) < 10_000:
		return grouped(int64(math.Round(n)))
	}
	for _, unit := range []string{"k", "M", "G", "T"} {
		switch n /= 1000; {
		case math.Abs(n) < 9.995:
			return fmt.Sprintf("%.2f%s", n, unit)
		case math.Abs(n) < 99.95:
			return fmt.Sprintf("%.1f%s", n, unit)
		case math.Abs(n) < 999.5:
			return fmt.Sprintf("%.0f%s", n, unit)
		}
	}
	return fmt.Sprintf("%.0fT", n)
}

// exact returns all digits of a number.
func exact(value any) string {
	switch value := value.(type) { // a float64 has too few digits
	case int64:
		return grouped(value)
	case *int64:
		if value != nil {
			return grouped(*value)
		}
	}
	n, ok := number(value)
	if !ok {
		return "unknown"
	}
	return grouped(int64(math.Round(n)))
}

// grouped returns a number with a comma before each three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	first := strings.IndexFunc(text, func(r rune) bool { return r != '-' })
	for i := len(text) - 3; i > first; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// number converts the numbers of views. A nil pointer is unknown.
func number(value any) (n float64, ok bool) {
	switch value := value.(type) {
	case int:
		return float64(value), true
	case int64:
		return float64(value), true
	case float64:
		return value, true
	case *int:
		if value == nil {
			return 0, false
		}
		return float64(*value), true
	case *int64:
		if value == nil {
			return 0, false
		}
		return float64(*value), true
	}
	return 0, false
}

// percent returns a part of a whole in percent, from 0 to 100.
func percent(part, whole any) int {
	a, _ := number(part)
	b, _ := number(whole)
	if b <= 0 {
		return 0
	}
	return int(min(max(a/b*100, 0), 100))
}

// rate returns a number per second. A nil pointer is unknown.
func rate(perSecond *float64) string {
	switch {
	case perSecond == nil:
		return "–"
	case *perSecond > 0 && *perSecond < 0.05:
		return formatCount(*perSecond*60) + "/min"
	}
	return formatCount(*perSecond) + "/s"
}

// share returns a share from 0 to 1 in percent.
func share(value float64) string { return strconv.FormatFloat(value*100, 'f', 1, 64) + " %" }

// duration returns a duration with two units at most, such as 840 ms, 4.2 s or 3 min 10 s.
func duration(value any) string {
	var d time.Duration
	switch value := value.(type) {
	case time.Duration:
		d = value
	case surface.Duration:
		d = time.Duration(value)
	case plans.Duration:
		d = time.Duration(value)
	case *plans.Duration:
		if value != nil {
			d = time.Duration(*value)
		}
	}
	switch {
	case d < 0:
		return "–" + duration(-d)
	case d == 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < 10*time.Second && d%time.Second != 0:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return twoUnits(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return twoUnits(d, time.Hour, "h", time.Minute, "min")
	}
	return twoUnits(d, 24*time.Hour, "d", time.Hour, "h")
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 && d < 10*large {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// ago returns how long ago a time was, or how long it takes until then.
func ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "–"
	case d < -time.Second:
		return "in " + duration((-d).Truncate(time.Second))
	case d < time.Second:
		return "now"
	default:
		return duration(d.Truncate(time.Second)) + " ago"
	}
}

// stamp returns a time with milliseconds and its zone.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// clock returns a time as the clock of its zone shows it.
func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Format("Mon 2006-01-02 15:04:05 MST")
}

// eventText returns what has ended an attempt, for people.
func eventText(e holdfast.Event) string {
	switch e {
	case holdfast.EventRetry:
		return "failed"
	case holdfast.EventDefer:
		return "deferred"
	case holdfast.EventInterrupt:
		return "handed back"
	case holdfast.EventCrash:
		return "worker died"
	case holdfast.EventGiveUp:
		return "gave up"
	case holdfast.EventCancel:
		return "cancelled"
	case holdfast.EventComplete:
		return "done"
	}
	return strings.ReplaceAll(string(e), "_", " ")
}

// gateNow returns the gate that keeps a task from starting, or nil. A limit keeps only tasks that are due.
func gateNow(t surface.ListedTask, now time.Time) *surface.TaskGate {
	if t.Gate != nil && t.Gate.Kind == store.GateLimit && t.NextRunAt.After(now) {
		return nil
	}
	return t.Gate
}

// shown is a state as pages show it.
type shown struct{ Name, Class, Icon string }

// stateView returns the icon, the word and the class of a state. Scheduled, retrying and blocked are views of ready.
func stateView(t holdfast.Task, now time.Time, blocked bool) shown {
	switch {
	case t.State != holdfast.Ready:
		return shown{string(t.State), string(t.State), string(t.State)}
	case blocked:
		return shown{"blocked", "blocked", "blocked"}
	case t.NextRunAt.After(now) && t.Attempt > 1:
		return shown{"retrying", "retrying", "retrying"}
	case t.NextRunAt.After(now):
		return shown{"scheduled", "scheduled", "scheduled"}
	}
	return shown{"ready", "ready", "ready"}
}

// sparks returns the points of a line through some values, in a box of 100 by 20.
func sparks(values []int64) string {
	var highest int64 = 1
	for _, v := range values {
		highest = max(highest, v)
	}
	var points []string
	for i, v := range values {
		x := float64(i) * 100 / float64(max(1, len(values)-1))
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, 19-18*float64(v)/float64(highest)))
	}
	return strings.Join(points, " ")
}

// tagOf returns a short hash.
func tagOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
