// Package logs holds the one rule about loggers: they are passed in, and none means silence.
package logs

import (
	"io"

	"github.com/sirupsen/logrus"
)

// OrDiscard returns log, or a logger that writes nothing if log is nil.
func OrDiscard(log logrus.FieldLogger) logrus.FieldLogger {
	if log != nil {
		return log
	}
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	return silent
}
