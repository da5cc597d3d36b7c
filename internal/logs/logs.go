// Package logs holds the rules about loggers: they are passed in, none means silence, and a message that repeats does
// not fill the log.
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
	// interval is how often a message that repeats appears.
	interval = time.Second
	// maxKinds bounds the memory for kinds of messages. Lines of further kinds appear without a limit.
	maxKinds = 10_000
	// maxPerMessage is how many kinds of one level and message are told apart. The lines of further ones are one kind.
	maxPerMessage = 30
	// leftOutKey is the field with the number of lines that were left out.
	leftOutKey = "left_out"
)

// identities are the fields that tell lines apart even if they are numbers.
var identities = map[string]bool{"run": true, "task": true, "worker": true, "queue": true, "lane": true}

// Limited returns a logger that passes to log what it is given, but a message that repeats about once a second. The field
// left_out counts the lines of its kind that did not appear since the one before. The first line of each kind appears at
// once. The last line of a repetition appears within a second, or with Flush.
//
// Lines are of one kind if they have the same level, message, fields and cause of an error. Numbers do not count, except in
// the fields run, task, worker, queue and lane. Of one message, 30 kinds appear in a second; the lines of all further kinds
// count as one kind. So the same trouble of a thousand tasks shows some dozens of them.
//
// A logger that is limited already is returned as it is, so that all that share it share one limit. If log is nil or a nil
// pointer, the logger writes nothing.
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

// Flush passes on the last of the lines that a limited logger has left out so far, so that nothing is missing at the end of
// a program. If no line is given meanwhile, no goroutine of the logger runs afterwards.
func Flush(log logrus.FieldLogger) {
	l := limitOf(log)
	if l == nil {
		return
	}
	for range 2 { // a tick that runs already may have missed the last lines
		l.mu.Lock()
		next := l.next
		l.mu.Unlock()
		if next == nil {
			return
		}
		if next.timer.Stop() {
			l.run(next)
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

// nothing formats what nobody reads: the hook has passed it on.
type nothing struct{}

// Format implements logrus.Formatter.
func (nothing) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

// limit is the hook that sees every line.
type limit struct {
	to *logrus.Entry

	mu      sync.Mutex
	kinds   map[string]*kind
	kindsOf map[string]int // kinds by level and message
	swept   time.Time      // when all kinds were looked at
	number  int            // of the newest line that was left out
	leftOut bool           // whether lines wait for the next tick
	next    *tick          // nil if none is needed
}

// tick is the time at which the last line of each kind appears, if lines of that kind were left out.
type tick struct {
	timer *time.Timer
	done  chan struct{}
}

// kind is what is known of the lines of one kind.
type kind struct {
	message string    // level and message
	shown   time.Time // when one appeared
	last    line      // of those that did not appear since
	leftOut int       // how many those are
}

// line is a line to pass on.
type line struct {
	logrus.Entry
	number  int // grows with each line that is left out
	leftOut int // lines of its kind before it
}

// Levels implements logrus.Hook.
func (l *limit) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (l *limit) Fire(entry *logrus.Entry) error {
	if !l.to.Logger.IsLevelEnabled(entry.Level) {
		return nil
	}
	if given := (line{Entry: *entry}); l.shows(given) {
		l.pass([]line{given})
	}
	return nil
}

// shows reports whether a line appears now, and counts it if it does not.
func (l *limit) shows(given line) bool {
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
	if k == nil && l.kindsOf[message] >= maxPerMessage {
		name = message
		k = l.kinds[name]
	}
	switch {
	case k == nil && len(l.kinds) >= maxKinds:
		return true
	case k == nil:
		l.kinds[name] = &kind{message: message, shown: now}
		l.kindsOf[message]++
		return true
	case k.leftOut == 0 && now.Sub(k.shown) >= interval:
		k.shown = now
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

// sweep forgets the kinds that do not repeat any more. l.mu is held.
func (l *limit) sweep(now time.Time) {
	l.swept = now
	for name, k := range l.kinds {
		if k.leftOut > 0 || now.Sub(k.shown) < interval {
			continue
		}
		delete(l.kinds, name)
		if l.kindsOf[k.message]--; l.kindsOf[k.message] == 0 {
			delete(l.kindsOf, k.message)
		}
	}
}

// arm starts the time to the next tick. l.mu is held.
func (l *limit) arm() {
	next := &tick{done: make(chan struct{})}
	next.timer = time.AfterFunc(interval, func() { l.run(next) })
	l.next = next
}

// run does one tick. All lines that wait appear together, in their order: if some waited longer than others, "connected"
// could appear after "connection lost" though it came before.
func (l *limit) run(t *tick) {
	defer close(t.done)
	now := time.Now()
	var lines []line
	l.mu.Lock()
	for _, k := range l.kinds {
		if k.leftOut == 0 {
			continue
		}
		k.last.leftOut = k.leftOut - 1
		lines = append(lines, k.last)
		*k = kind{message: k.message, shown: now}
	}
	l.leftOut = false
	l.mu.Unlock()
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.number, b.number) })
	l.pass(lines)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next = nil; l.leftOut {
		l.arm()
	}
}

// pass hands lines on. Not under the lock: a hook of the other logger may log.
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
	for _, key := range slices.Sorted(maps.Keys(entry.Data)) {
		value := entry.Data[key]
		switch v := value.(type) {
		case error:
			// The cause stands last. What comes before it tells where it was met, often with an address and its port.
			text := v.Error()
			value = digits.ReplaceAllString(text[strings.LastIndex(text, ": ")+1:], "#")
		case time.Time:
			continue
		default:
			switch reflect.ValueOf(value).Kind() {
			case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64,
				reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
				if !identities[key] {
					continue // counts and durations
				}
			}
		}
		fmt.Fprintf(&name, "\x00%s=%v", key, value)
	}
	return message, name.String()
}
