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

// FromSlog returns a logger that passes what it is given to log, if log takes lines of that level. Fields become attributes
// in the order of their names. FromSlog(nil) is nil, which Limited takes as silence.
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
	var pc uintptr // of the line that logged
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

// slogLevel has a level below debug for traces and one above error for what ends the program.
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
