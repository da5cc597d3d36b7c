package holdfast

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
)

// TypeHTTP is the type of the tasks that deliver webhooks; see package consumer/webhook.
const TypeHTTP = "http"

// TargetOf returns the target of a task of type http: the scheme, the host and the port of its URL, as in
// "https://api.example.com:443". Letters are in lower case, and the port is always present. Returns "" for other types,
// and for a payload that is not a request with an http or https URL.
func TargetOf(taskType string, payload []byte) string {
	var request struct{ URL string }
	if taskType != TypeHTTP || json.Unmarshal(payload, &request) != nil {
		return ""
	}
	target, _ := ParseTarget(request.URL)
	return target
}

// ParseTarget returns the target that a URL names, in the form of [TargetOf]. ok is false if text is not an http or https
// URL with a host, without a user, and without an escape in the host.
func ParseTarget(text string) (target string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Hostname() == "" || escapedHost(text) {
		return "", false
	}
	port := map[string]uint64{"http": 80, "https": 443}[u.Scheme]
	if port == 0 {
		return "", false
	}
	if u.Port() != "" {
		if port, err = strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
			return "", false
		}
	}
	host := lowerASCII(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return u.Scheme + "://" + host + ":" + strconv.FormatUint(port, 10), true
}

// escapedHost reports whether the host of a URL contains a zone or an escape. Parse decodes the escapes of some hosts.
func escapedHost(text string) bool {
	_, rest, _ := strings.Cut(text, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return strings.Contains(rest, "%")
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
