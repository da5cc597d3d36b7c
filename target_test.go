package holdfast_test

import (
	"errors"
	"net/netip"
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

// All spellings of a host have the same target, or none.
func TestATargetHasOneSpelling(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://[0:0:0:0:0:0:0:1]/x":        "http://[::1]:80",
		"http://[::0001]:080":               "http://[::1]:80",
		"http://[::0.0.0.1]":                "http://[::1]:80",
		"https://[2001:DB8:0:0:1:0:0:1]":    "https://[2001:db8::1:0:0:1]:443",
		"https://[2001:db8::0:1]":           "https://[2001:db8::1]:443",
		"http://[::ffff:127.0.0.1]":         "http://127.0.0.1:80",
		"http://[::FFFF:7f00:1]":            "http://127.0.0.1:80",
		"http://[0:0:0:0:0:ffff:7f00:0001]": "http://127.0.0.1:80",
		"https://Example.COM./":             "https://example.com:443",
		"https://127.0.0.1.:8080":           "https://127.0.0.1:8080",
		"https://xn--BCHER-kva.example":     "https://xn--bcher-kva.example:443",
		"https://example.com..":             "",
		"https://.":                         "",
		"https://[1.2.3.4]":                 "",
		"https://[::1::]":                   "",
		"https://[12345::]":                 "",
		"https://bücher.example":            "",
		"https://ｅｘａｍｐｌｅ.com":               "",
		"https://example。com":               "",
		"https://exam\u00adple.com":         "",
		"https://１２７.0.0.1":                 "",
		"https://\u212alingon.example":      "", // the sign for kelvin, whose lower case is k
	} {
		if got, ok := holdfast.ParseTarget(text); got != want || ok != (want != "") {
			t.Errorf("the target of %q is %q, %t; want %q", text, got, ok, want)
		}
	}
}

// FuzzParseTarget checks that a target is short, that ParseTarget returns it for itself, and that it agrees with
// package url.
func FuzzParseTarget(f *testing.F) {
	for _, text := range []string{"https://example.com/a", "HTTP://[::1]:080?x", "https://a:", "https://b@c", "https://\u00fc#/", "http://[0::ffff:1.2.3.4]", "http://A.:1", "http://a%62/", "http://:1"} {
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
		named, err := url.Parse(target)
		if err != nil {
			t.Fatalf("the target of %q is %q: %v", text, target, err)
		}
		host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
		if addr, err := netip.ParseAddr(host); err == nil {
			host = addr.Unmap().String()
		}
		if u.User != nil || strings.ToLower(u.Scheme) != named.Scheme || host != named.Hostname() {
			t.Fatalf("the target of %q is %q", text, target)
		}
	})
}
