package holdfast

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Fingerprint identifies the cause of a death. Dead tasks with the same fingerprint form a group. Two tasks have the
// same fingerprint if they agree in:
//
//   - the type of the task and the class of the error,
//   - for a delivery, the host of the target and the status of the response,
//   - unless there was a response, the error text without its variable parts; see [Normalize],
//   - for a panic, the names of the functions at the top of the stack.
//
// A fingerprint consists of 16 hexadecimal digits. A later version of the module may compute other fingerprints.
func Fingerprint(taskType string, r Report) string {
	host, status := r.Target()
	parts := []string{taskType, r.Class, host, strconv.Itoa(status)}
	if status == 0 {
		parts = append(parts, Normalize(r.Error))
	}
	parts = append(parts, topFrames(r.Stack)...)
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// fingerprintDigits is the number of digits of a fingerprint.
const fingerprintDigits = 16

// ParseFingerprint returns the digits of a fingerprint, or of its beginning of at least 4 digits, in lower case. whole is
// set if text has all digits. It returns an ErrInvalid if text has another form.
func ParseFingerprint(text string) (digits string, whole bool, err error) {
	digits = strings.ToLower(text)
	if len(text) < 4 || len(text) > fingerprintDigits || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", false, fmt.Errorf("%w: group %.60q is not a fingerprint of 16 hexadecimal digits, or its first 4 or more", ErrInvalid, text)
	}
	return digits, len(digits) == fingerprintDigits, nil
}

// Target returns the host, with its port if it has one, and the status of a delivery. It reads both from the details.
// If a field is missing or has another form, its result is zero.
func (r Report) Target() (host string, status int) {
	var fields struct {
		URL    any `json:"url"`
		Status any `json:"status"`
	}
	if len(r.Details) == 0 || json.Unmarshal(r.Details, &fields) != nil {
		return "", 0
	}
	if text, ok := fields.URL.(string); ok {
		if u, err := url.Parse(text); err == nil {
			host = clip(strings.ToLower(u.Host), MaxNameLength)
		}
	}
	if number, ok := fields.Status.(float64); ok && number >= 100 && number <= 599 {
		status = int(number)
	}
	return host, status
}

// variable is a pattern for a part of an error text that differs between errors with the same cause.
type variable struct {
	pattern *regexp.Regexp
	name    string // replacement for a match, may refer to groups of the pattern
}

// variables are applied one after another. Longer forms come first, because later patterns match their parts. They are
// compiled at the first error, because every command would otherwise start more slowly.
var variables = sync.OnceValue(func() []variable {
	return []variable{
		{regexp.MustCompile(`\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>` + "`" + `]+`), "<url>"},
		{regexp.MustCompile(`"(?:[^"\\]|\\.)*"|` + "`[^`]*`" + `|«[^»]*»|“[^”]*”`), "<quoted>"},
		// An apostrophe inside a word does not begin a quotation.
		{regexp.MustCompile(`(^|[^\pL\pN])'(?:[^'\\]|\\.)*'`), "${1}<quoted>"},
		{regexp.MustCompile(`\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b`), "<id>"},
		{regexp.MustCompile(`\b\d{4}[-/]\d{2}[-/]\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))*(?: m=[+-][\d.]+)?`), "<time>"},
		{regexp.MustCompile(`\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? [\w ]{5,11}(?: \d{4})? \d{2}:\d{2}:\d{2}(?: \d{4})?(?: (?:GMT|UTC|[+-]\d{4}))?`), "<time>"},
		{regexp.MustCompile(`\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?`), "<time>"},
		{regexp.MustCompile(`[-+]?\b(?:\d+(?:\.\d+)?(?:ns|us|µs|μs|ms|s|m|h))+\b`), "<n>"},
		{regexp.MustCompile(`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\w+)?\](?::\d+)?`), "<address>"},
		{regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b`), "<address>"},
		{regexp.MustCompile(`(?:\b[0-9a-fA-F]{1,4})?(?::[0-9a-fA-F]{0,4}){2,7}\b`), "<address>"},
		{regexp.MustCompile(`\b0[xX][0-9a-fA-F]+\b`), "<id>"},
	}
})

var (
	words   = regexp.MustCompile(`[a-zA-Z0-9]+`)
	numbers = regexp.MustCompile(`[-+]?\d+(?:[.,]\d+)*`)
	spaces  = regexp.MustCompile(`\s+`)
)

// maxNormalized is the maximum number of bytes of an error text that Normalize reads. Two texts
// that differ only after it have the same cause.
const maxNormalized = 2 << 10

// Normalize returns an error text with a placeholder for each part that differs between errors with the same cause:
// URLs, quoted values, times, durations, addresses, ids and numbers. It reads the first 2 KiB of the text.
func Normalize(text string) string {
	text = clip(text, maxNormalized)
	for _, v := range variables() {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	text = words.ReplaceAllStringFunc(text, func(word string) string {
		if isID(word) {
			return "<id>"
		}
		return word
	})
	text = numbers.ReplaceAllString(text, "<n>")
	return strings.TrimSpace(spaces.ReplaceAllString(text, " "))
}

// isID reports whether a word looks like an id: it has at least five letters and digits, including two digits and a
// letter.
func isID(word string) bool {
	digits := 0
	for _, c := range []byte(word) {
		if c >= '0' && c <= '9' {
			digits++
		}
	}
	return len(word) >= 5 && digits >= 2 && digits < len(word)
}

// framesOfPanic is the number of functions that distinguish panics.
const framesOfPanic = 3

// topFrames returns the names of the functions that were active when the handler panicked or called runtime.Goexit. The
// innermost comes first, and functions of the Go runtime are omitted. stack is in the format of debug.Stack.
func topFrames(stack string) []string {
	// The functions above the call of panic or runtime.Goexit ran because of that call.
	for _, call := range []string{"\npanic(", "\nruntime.Goexit("} {
		if _, below, found := strings.Cut(stack, call); found {
			_, stack, _ = strings.Cut(below, "\n")
			break
		}
	}
	var frames []string
	for line := range strings.Lines(stack) {
		end := strings.LastIndexByte(line, '(')
		if line[0] == '\t' || end <= 0 || strings.HasPrefix(line, "runtime.") || strings.HasPrefix(line, "panic(") {
			continue
		}
		if frames = append(frames, line[:end]); len(frames) == framesOfPanic {
			break
		}
	}
	return frames
}
