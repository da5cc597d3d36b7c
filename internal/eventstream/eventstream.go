// Package eventstream writes streams of server-sent events. All surfaces use this writer, so that no text, whatever it
// holds, begins another event or another field of one.
package eventstream

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// sendLimit is how long a client may need to receive an event. A slower client loses its stream.
const sendLimit = 10 * time.Second

// Writer sends events to one client. It is not safe for concurrent use.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Begin sends the header of a stream. The time limits of the server do not apply to a stream. Begin returns an error if
// the client has gone.
func Begin(w http.ResponseWriter) (*Writer, error) {
	e := &Writer{w, http.NewResponseController(w)}
	if err := supported(e.control.SetReadDeadline(time.Time{})); err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // some proxies would collect the events
	w.WriteHeader(http.StatusOK)
	return e, e.flush()
}

// lineBreaks has what ends a line of an event stream.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Send sends an event. The name is a constant of the program. A line break in the data may be CR, LF or CRLF. The
// client receives LF for each, because an event stream cannot carry the other two. Send returns an error if the client
// has gone.
func (e *Writer) Send(name, data string) error {
	var text strings.Builder
	text.WriteString("event: " + name + "\n")
	for line := range strings.SplitSeq(lineBreaks.Replace(data), "\n") {
		text.WriteString("data: " + line + "\n")
	}
	text.WriteString("\n")
	return e.write(text.String())
}

// Beat sends a comment, which shows proxies that the connection lives. Send describes the error.
func (e *Writer) Beat() error { return e.write(":\n\n") }

func (e *Writer) write(text string) error {
	if err := supported(e.control.SetWriteDeadline(time.Now().Add(sendLimit))); err != nil {
		return err
	}
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.flush()
}

func (e *Writer) flush() error { return supported(e.control.Flush()) }

// supported returns err, and nil if the response writer of a test or of a middleware lacks the function.
func supported(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}
