// Package logs limits repeated log messages and adapts slog. Loggers are always passed in, and a nil logger means no
// output.
package logs

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// interval is the time between two lines of a repeated message.
	interval = time.Second
	// groupInterval is the time between two lines of a message about tasks of one group.
	groupInterval = time.Minute
	// maxKinds limits the memory for kinds of lines. Lines of further kinds appear without a limit.
	maxKinds = 10_000
	// maxPerMessage is the maximum number of kinds with the same level and message. Lines of further kinds are treated
	// as one kind.
	maxPerMessage = 30
	// maxGroups replaces maxPerMessage for messages about groups.
	maxGroups = 300
	// leftOutKey is the field with the number of lines that were left out.
	leftOutKey = "left_out"
	// groupKey is the field with the group of a dead task.
	groupKey = "group"
)

// identities are the fields whose numbers distinguish kinds.
var identities = map[string]bool{"task": true, "queue": true, "worker": true}

// Limited returns a logger that passes lines on to log. Of a repeated message, about one line appears per second. The
// field left_out counts the lines of the same kind that were left out before. The first line of each kind appears at
// once. The last line of a repetition appears within a second, or when Flush is called.
//
// Two lines are of the same kind if they have the same level, message, fields and cause of an error. Numbers are
// ignored, except in the fields queue, task and worker. At most 30 kinds of a message appear per second, and the lines
// of all further kinds are treated as one kind. So if a thousand tasks have the same problem, some dozens of them
// appear.
//
// Lines with the field group are of the same kind if they have the same level, message and group. Such a line appears
// about once a minute, because an outage may kill thousands of tasks for one cause.
//
// If log is already limited, Limited returns it unchanged, so that all its users share one limit. If log is nil or a
// nil pointer, the result writes nothing.
func Limited(log logrus.FieldLogger) logrus.FieldLogger {
	if none(log) {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		silent.SetLevel(logrus.PanicLevel)
		return silent
	}
	if limitOf(log) != nil {
		return log
	}
	to := log.WithFields(nil)
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetFormatter(nothing{})
	l.SetLevel(logrus.TraceLevel) // the level of log decides, which may change
	l.SetReportCaller(to.Logger.ReportCaller)
	l.AddHook(&limit{to: to, kinds: make(map[string]*kind), kindsOf: make(map[string]int)})
	return l
}

// none reports whether there is no logger: log is nil, or a nil pointer.
func none(log logrus.FieldLogger) bool {
	if log == nil {
		return true
	}
	value := reflect.ValueOf(log)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

// Flush writes the last line of each kind whose lines were left out, so that no line is missing at the end of a
// program. If no line is logged meanwhile, no goroutine of the logger runs afterwards.
func Flush(log logrus.FieldLogger) {
	l := limitOf(log)
	if l == nil {
		return
	}
	for range 2 { // a tick that is already running may have missed the last lines
		l.mu.Lock()
		next := l.next
		l.mu.Unlock()
		if next == nil {
			return
		}
		if next.timer.Stop() {
			l.run(next, true)
			return
		}
		<-next.done
	}
}

func limitOf(log logrus.FieldLogger) *limit {
	for _, hook := range log.WithFields(nil).Logger.Hooks[logrus.PanicLevel] {
		if l, ok := hook.(*limit); ok {
			return l
		}
	}
	return nil
}

// nothing is a formatter without output. The hook has already passed the line on.
type nothing struct{}

// Format implements logrus.Formatter.
func (nothing) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

// limit is the hook that receives every line.
type limit struct {
	to *logrus.Entry

	mu      sync.Mutex
	kinds   map[string]*kind
	kindsOf map[string]int // kinds by level and message
	swept   time.Time      // when sweep was last called
	number  int            // number of the latest line that was left out
	leftOut bool           // whether lines were left out since the last tick
	next    *tick          // nil if no lines wait
}

// tick writes the last line of each kind whose lines were left out.
type tick struct {
	timer *time.Timer
	done  chan struct{}
}

// kind is the state of one kind of line.
type kind struct {
	message  string // level and message
	interval time.Duration
	appeared time.Time // when a line appeared
	last     line      // the last line that was left out since then
	leftOut  int       // number of lines that were left out since then
}

// line is a line to pass on.
type line struct {
	logrus.Entry
	number  int // grows with each line that is left out
	leftOut int // number of lines of its kind that were left out before it
}

// Levels implements logrus.Hook.
func (l *limit) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (l *limit) Fire(entry *logrus.Entry) error {
	if !l.to.Logger.IsLevelEnabled(entry.Level) {
		return nil
	}
	if given := (line{Entry: *entry}); l.appears(given) {
		l.pass([]line{given})
	}
	return nil
}

// appears reports whether a line appears now. If not, it records the line.
func (l *limit) appears(given line) bool {
	if given.Level <= logrus.FatalLevel {
		return true
	}
	message, name := nameOf(&given.Entry)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) >= interval {
		l.sweep(now)
	}
	k := l.kinds[name]
	every, most := interval, maxPerMessage
	if _, ofGroup := given.Data[groupKey]; ofGroup {
		every, most = groupInterval, maxGroups
	}
	if k == nil && l.kindsOf[message] >= most {
		name = message
		k = l.kinds[name]
	}
	switch {
	case k == nil && len(l.kinds) >= maxKinds:
		return true
	case k == nil:
		l.kinds[name] = &kind{message: message, interval: every, appeared: now}
		l.kindsOf[message]++
		return true
	case k.leftOut == 0 && now.Sub(k.appeared) >= k.interval:
		k.appeared = now
		return true
	}
	l.number++
	given.number = l.number
	given.Data = maps.Clone(given.Data)
	k.last, k.leftOut = given, k.leftOut+1
	l.leftOut = true
	if l.next == nil {
		l.arm()
	}
	return false
}

// sweep deletes the kinds that no longer repeat. l.mu must be locked.
func (l *limit) sweep(now time.Time) {
	l.swept = now
	for name, k := range l.kinds {
		if k.leftOut > 0 || now.Sub(k.appeared) < k.interval {
			continue
		}
		delete(l.kinds, name)
		if l.kindsOf[k.message]--; l.kindsOf[k.message] == 0 {
			delete(l.kindsOf, k.message)
		}
	}
}

// arm schedules the next tick. l.mu must be locked.
func (l *limit) arm() {
	next := &tick{done: make(chan struct{})}
	next.timer = time.AfterFunc(interval, func() { l.run(next, false) })
	l.next = next
}

// run executes one tick. With all, lines about groups do not wait for the end of their minute. All lines appear
// together, in the order in which they were logged. Otherwise "connected" could appear after a later "connection lost".
func (l *limit) run(t *tick, all bool) {
	defer close(t.done)
	now := time.Now()
	var lines []line
	wait := false
	l.mu.Lock()
	for _, k := range l.kinds {
		if k.leftOut == 0 {
			continue
		}
		if !all && k.interval > interval && now.Sub(k.appeared) < k.interval {
			wait = true
			continue
		}
		k.last.leftOut = k.leftOut - 1
		lines = append(lines, k.last)
		*k = kind{message: k.message, interval: k.interval, appeared: now}
	}
	l.leftOut = wait
	l.mu.Unlock()
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.number, b.number) })
	l.pass(lines)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next = nil; l.leftOut {
		l.arm()
	}
}

// pass writes lines to the other logger. l.mu must not be locked, because a hook of that logger may log.
func (l *limit) pass(lines []line) {
	for _, given := range lines {
		entry := l.to.WithTime(given.Time).WithFields(given.Data)
		if given.leftOut > 0 {
			entry = entry.WithField(leftOutKey, given.leftOut)
		}
		if given.Context != nil {
			entry.Context = given.Context
		}
		entry.Caller = given.Caller
		entry.Log(given.Level, given.Message)
	}
}

var digits = regexp.MustCompile(`[0-9]+`)

// nameOf returns the level and message of a line, and the name of its kind, which begins with them.
func nameOf(entry *logrus.Entry) (message, kind string) {
	message = fmt.Sprintf("%d\x00%s", entry.Level, entry.Message)
	var name strings.Builder
	name.WriteString(message)
	if group, ok := entry.Data[groupKey]; ok {
		return message, fmt.Sprintf("%s\x00%v", message, group)
	}
	for _, key := range slices.Sorted(maps.Keys(entry.Data)) {
		value := entry.Data[key]
		switch v := value.(type) {
		case error:
			// The cause is at the end. The text before it is the context, often with an address and port.
			text := v.Error()
			value = digits.ReplaceAllString(text[strings.LastIndex(text, ": ")+1:], "#")
		case time.Time:
			continue
		default:
			switch reflect.ValueOf(value).Kind() {
			case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64,
				reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
				if !identities[key] {
					continue // the value is a count or a duration
				}
			}
		}
		fmt.Fprintf(&name, "\x00%s=%v", key, value)
	}
	return message, name.String()
}
