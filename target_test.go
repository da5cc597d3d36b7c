package holdfast_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

func TestCheckTarget(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a", holdfast.MaxHostLength)
	for _, target := range []string{"https://example.com:443", "http://[::1]:8080", "https://" + longest + ":65535"} {
		if err := holdfast.CheckTarget(target); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	for _, text := range []string{
		"", "example.com", "https://example.com", "https://EXAMPLE.com:443", "https://example.com:443/", "https://example.com:0443", "https://example.com:65536",
		"https://" + longest + "a:443", "https://" + strings.Repeat("a", 6000) + ":443", "https://a:" + strings.Repeat("9", 6000), "https://a\xff:443",
	} {
		if err := holdfast.CheckTarget(text); !errors.Is(err, holdfast.ErrInvalid) || len(err.Error()) > 400 {
			t.Errorf("%.100q: %v", text, err)
		}
	}
}

// FuzzParseTarget checks that a target is short and names itself, and that it is what package url reads.
func FuzzParseTarget(f *testing.F) {
	for _, text := range []string{"https://example.com/a", "HTTP://[::1]:080?x", "https://a:", "https://b@c", "https://\u00fc#/", "http://a%62/", "http://:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		target, ok := holdfast.ParseTarget(text)
		if ok && (len(target) > 267 || holdfast.CheckTarget(target) != nil) {
			t.Fatalf("the target of %q is %q", text, target)
		}
		u, err := url.Parse(text)
		if err != nil || !ok {
			return
		}
		if host := strings.ToLower(u.Hostname()); u.User != nil || strings.ToLower(u.Scheme) != target[:strings.Index(target, ":")] ||
			!strings.Contains(strings.ToLower(target), host) {
			t.Fatalf("the target of %q is %q", text, target)
		}
	})
}
