package logs

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
)

// FromSlog returns a logger that passes lines on to log if their level is enabled there. Fields become attributes in
// the order of their names. FromSlog(nil) returns nil, which Limited accepts.
func FromSlog(log *slog.Logger) logrus.FieldLogger {
	if log == nil {
		return nil
	}
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetFormatter(nothing{})
	l.SetLevel(logrus.TraceLevel) // log decides
	l.AddHook(toSlog{log.Handler()})
	return l
}

// toSlog is the hook that passes lines on.
type toSlog struct{ to slog.Handler }

// Levels implements logrus.Hook.
func (toSlog) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h toSlog) Fire(entry *logrus.Entry) error {
	ctx := entry.Context
	if ctx == nil {
		ctx = context.Background()
	}
	level := slogLevel(entry.Level)
	if !h.to.Enabled(ctx, level) {
		return nil
	}
	var pc uintptr // program counter of the call that logged the line
	if entry.Caller != nil {
		pc = entry.Caller.PC
	}
	record := slog.NewRecord(entry.Time, level, entry.Message, pc)
	for _, key := range slices.Sorted(maps.Keys(entry.Data)) {
		record.AddAttrs(attribute(key, entry.Data[key]))
	}
	return h.to.Handle(ctx, record)
}

func attribute(key string, value any) slog.Attr {
	switch v := value.(type) {
	case error:
		return slog.String(key, v.Error())
	case time.Duration:
		return slog.Duration(key, v)
	}
	return slog.Any(key, value)
}

// slogLevel converts a level. Trace is below the levels of slog, and fatal and panic are above them.
func slogLevel(level logrus.Level) slog.Level {
	switch level {
	case logrus.TraceLevel:
		return slog.LevelDebug - 4
	case logrus.DebugLevel:
		return slog.LevelDebug
	case logrus.InfoLevel:
		return slog.LevelInfo
	case logrus.WarnLevel:
		return slog.LevelWarn
	case logrus.ErrorLevel:
		return slog.LevelError
	default:
		return slog.LevelError + 4
	}
}
