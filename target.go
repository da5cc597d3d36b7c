package holdfast

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// TypeHTTP is the type of the tasks that deliver webhooks; see package consumer/webhook.
const TypeHTTP = "http"

// Limits of the URL of a task of type http. A URL that exceeds one of them has no target.
const (
	MaxURLLength  = 8 << 10 // in bytes
	MaxHostLength = 253     // of the host, in bytes: the longest name in the DNS
)

// TargetOf returns the target of a task of type http: the scheme, the host and the port of its URL, as in
// "https://api.example.com:443". Letters are in lower case, and the port is always present. It returns "" for other
// types, and for a payload that is not a request with an http or https URL. A target has at most 267 bytes. Every store
// computes the same target.
//
// Apart from its case, the host has the spelling of the payload. A host can have several spellings, and a pause
// concerns only the spelling of [ParseTarget]. Package consumer/webhook therefore makes no request if the target
// differs from that of ParseTarget.
func TargetOf(taskType string, payload []byte) string {
	var request struct{ URL lastText }
	if taskType != TypeHTTP || json.Unmarshal(payload, &request) != nil {
		return ""
	}
	scheme, host, port, ok := splitTarget(string(request.URL))
	if !ok {
		return ""
	}
	return joinTarget(scheme, host, port)
}

// lastText is the last value of a field that can appear several times. It ignores null. If the value is not a string,
// the text is empty.
type lastText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *lastText) UnmarshalJSON(value []byte) error {
	switch {
	case string(value) == "null":
		return nil
	case len(value) > 0 && value[0] == '"':
		return json.Unmarshal(value, (*string)(t))
	}
	*t = ""
	return nil
}

// ParseTarget returns the target that a URL names, in the form of [TargetOf]. Its host has the only spelling that
// requests can have. An IPv6 address is in the form of RFC 5952, and an IPv4 address that is mapped to IPv6 is an IPv4
// address. A name has no final dot.
//
// ok is false if one of these conditions does not hold:
//
//   - The text is an http or https URL with a host, without a user, and without an escape in the host.
//   - The host has only ASCII characters: the DNS knows bücher.example as xn--bcher-kva.example.
//   - The URL has at most MaxURLLength bytes, and the host at most MaxHostLength.
//   - The port is between 1 and 65535.
//
// ParseTarget does not check the text after the port.
func ParseTarget(text string) (target string, ok bool) {
	scheme, host, port, ok := splitTarget(text)
	if !ok {
		return "", false
	}
	if host, ok = normalHost(host); !ok {
		return "", false
	}
	return joinTarget(scheme, host, port), true
}

// joinTarget returns the target of a scheme, a host and a port.
func joinTarget(scheme, host string, port int) string {
	return scheme + "://" + host + ":" + strconv.Itoa(port)
}

// splitTarget returns the parts of the target of a URL. Scheme and host are in lower case, and an IPv6 address keeps
// its brackets. It parses URLs as the function target_of in PostgreSQL does.
func splitTarget(text string) (scheme, host string, port int, ok bool) {
	if len(text) > MaxURLLength {
		return "", "", 0, false
	}
	scheme, rest, found := strings.Cut(text, "://")
	scheme = lowerASCII(scheme)
	port = map[string]int{"http": 80, "https": 443}[scheme]
	if !found || port == 0 {
		return "", "", 0, false
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	host, number, ok := splitPort(rest)
	if !ok || len(host) > MaxHostLength || !validHost(host) {
		return "", "", 0, false
	}
	if number != "" {
		if number = strings.TrimLeft(number, "0"); len(number) > 5 {
			return "", "", 0, false
		}
		if port, _ = strconv.Atoi(number); port == 0 || port > 65535 {
			return "", "", 0, false
		}
	}
	return scheme, lowerASCII(host), port, true
}

// normalHost returns the common spelling of all spellings of a host. ok is false if the host has none.
func normalHost(host string) (normal string, ok bool) {
	if address, isIPv6 := strings.CutPrefix(host, "["); isIPv6 {
		addr, err := netip.ParseAddr(strings.TrimSuffix(address, "]"))
		switch {
		case err != nil || addr.Is4():
			return "", false
		case addr.Is4In6():
			return addr.Unmap().String(), true
		}
		return "[" + addr.String() + "]", true
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || strings.HasSuffix(host, ".") || strings.ContainsFunc(host, func(r rune) bool { return r > 0x7f }) {
		return "", false
	}
	return host, true
}

// splitPort splits the part of a URL between :// and the path. An IPv6 address keeps its brackets.
func splitPort(text string) (host, port string, ok bool) {
	end := strings.IndexByte(text, ':')
	if strings.HasPrefix(text, "[") {
		end = strings.IndexByte(text, ']') + 1
	}
	if end < 0 {
		return text, "", true
	}
	host, port = text[:end], text[end:]
	if port == "" {
		return host, "", true
	}
	return host, port[1:], port[0] == ':' && strings.Trim(port[1:], "0123456789") == ""
}

// validHost reports whether a host has only valid characters. They must be the same as in the function target_of in
// PostgreSQL.
func validHost(host string) bool {
	if address, found := strings.CutPrefix(host, "["); found {
		address, found = strings.CutSuffix(address, "]")
		return found && address != "" && strings.Trim(address, "0123456789abcdefABCDEF:.") == ""
	}
	return host != "" && !strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("@:%[]\\^`{|}", r) })
}

// CheckTarget returns an ErrInvalid if text is not a target in the form of [TargetOf].
func CheckTarget(text string) error {
	if scheme, host, port, ok := splitTarget(text); ok && joinTarget(scheme, host, port) == text {
		return nil
	}
	return fmt.Errorf("%w: %.120q is not a target; a target has the form https://example.com:443, and its host has at most %d bytes", ErrInvalid, text, MaxHostLength)
}

// lowerASCII converts only ASCII letters, so that every store computes the same target.
func lowerASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
