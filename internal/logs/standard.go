package logs

import (
	"io"
	"log"
	"strings"

	"github.com/sirupsen/logrus"
)

// maxLine is the maximum length of a line from another package, in bytes.
const maxLine = 16 << 10

// RouteStandard sends the lines of the standard logger of Go to log, at the level warning. Package net/http writes there
// what clients and targets do wrong, with texts that they choose. A program calls RouteStandard once, before it serves.
func RouteStandard(to logrus.FieldLogger) {
	log.SetFlags(0)
	log.SetPrefix("")
	log.SetOutput(Lines(to))
}

// Lines returns a writer that logs each text as one line at the level warning, with the text in the field text. So a
// text can neither end the line nor look like another one.
func Lines(to logrus.FieldLogger) io.Writer { return lines{Limited(to)} }

type lines struct{ to logrus.FieldLogger }

// Write implements io.Writer. It always succeeds.
func (l lines) Write(text []byte) (int, error) {
	line := strings.TrimSpace(string(text))
	if len(line) > maxLine {
		line = line[:maxLine] + "…"
	}
	l.to.WithField("text", strings.ToValidUTF8(line, "�")).Warn("a package of the program reports")
	return len(text), nil
}
