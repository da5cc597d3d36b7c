package webhook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
)

const (
	keyA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"
	keyB = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func TestBodies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ payload, body, content string }{
		{`{"url":"http://a"}`, "", ""},
		{`{"url":"http://a","body":null}`, "", ""},
		{`{"url":"http://a","body":{ "b" : 1.50, "a": "\u00e9<" }}`, `{"b":1.50,"a":"\u00e9<"}`, "application/json"},
		{`{"url":"http://a","body":12345678901234567890123}`, "12345678901234567890123", "application/json"},
		{`{"url":"http://a","body":[]}`, "[]", "application/json"},
		{`{"url":"http://a","body":false}`, "false", "application/json"},
		{`{"url":"http://a","body":"a\nb \u00e9"}`, "a\nb é", "text/plain; charset=utf-8"},
		{`{"url":"http://a","body":""}`, "", "text/plain; charset=utf-8"},
		{`{"url":"http://a","body_base64":"AP8="}`, "\x00\xff", "application/octet-stream"},
	} {
		p, err := parse([]byte(test.payload))
		if err != nil {
			t.Errorf("%s: %v", test.payload, err)
			continue
		}
		if string(p.body) != test.body || p.content != test.content {
			t.Errorf("%s: got %q, %s", test.payload, p.body, p.content)
		}
		req, err := p.build(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if req.Method != "POST" || req.ContentLength != int64(len(test.body)) || req.Header.Get("Content-Type") != test.content {
			t.Errorf("%s: got %+v", test.payload, req)
		}
	}
}

func TestAPayloadMayChooseItsContentType(t *testing.T) {
	t.Parallel()
	p, err := parse([]byte(`{"url":"https://a/b?c=d#e","method":"put","headers":{"content-type":"text/csv","X-A":"1"},"body":"x","timeout":"5s"}`))
	if err != nil {
		t.Fatal(err)
	}
	req, err := p.build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if req.Header.Get("Content-Type") != "text/csv" || req.Header.Get("X-A") != "1" || req.Method != "PUT" || p.timeout != 5*time.Second {
		t.Errorf("got %+v", req)
	}
	if req.URL.RequestURI() != "/b?c=d" {
		t.Errorf("request for %s", req.URL.RequestURI())
	}
}

func testHandler(t testing.TB, o Options) *Handler {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func TestInvalidPayloadsAreRefusedByEnqueue(t *testing.T) {
	t.Parallel()
	h := testHandler(t, Options{Secrets: map[string]Secret{"billing": {Hosts: []string{"example.com:443", "*.example.com"}}}})
	long := strings.Repeat("x", 9000)
	for payload, want := range map[string]string{
		``:                                         "invalid payload for type http: EOF",
		`null`:                                     "invalid payload for type http: field url is missing",
		`[]`:                                       "invalid payload for type http: cannot unmarshal array",
		`{"url":"http://a"} {}`:                    "invalid payload for type http: more than one JSON value",
		`{"url":1}`:                                "invalid payload for type http: cannot unmarshal number",
		`{"url":"http://a","x":1}`:                 `invalid payload for type http: unknown field "x"`,
		`{}`:                                       "invalid payload for type http: field url is missing",
		`{"url":"ftp://a"}`:                        `the url must begin with http:// or https://, not "ftp"`,
		`{"url":"//a"}`:                            `the url must begin with http:// or https://, not ""`,
		`{"url":"file:///etc"}`:                    `not "file"`,
		`{"url":"http:///x"}`:                      "the url has no host",
		`{"url":"http:a"}`:                         "the url has no host",
		`{"url":"http://:80"}`:                     "the url has no host",
		`{"url":"http://u:p@a"}`:                   "the url contains a user or password; use the Authorization header instead",
		`{"url":"http://a:b"}`:                     "cannot parse the url: invalid port",
		`{"url":"http://a:0"}`:                     `the port "0" of the url is not between 1 and 65535`,
		`{"url":"http://a:65536"}`:                 `the port "65536" of the url is not between`,
		`{"url":"http://[::1"}`:                    "cannot parse the url: missing ']'",
		`{"url":"http://a/\u0000"}`:                "cannot parse the url",
		`{"url":"http://` + long + `"}`:            "the url has 9007 bytes, the limit is 8192",
		`{"url":"http://` + long[:254] + `"}`:      "the host of the url has 254 bytes, the limit is 253",
		`{"url":"http://a","method":"BREW"}`:       `the method "BREW" is not GET`,
		`{"url":"http://a","method":"CONNECT"}`:    `the method "CONNECT" is not GET`,
		`{"url":"http://a","headers":{"a b":"x"}}`: `"a b" is not a valid header name`,
		`{"url":"http://a","headers":{"":"x"}}`:    `"" is not a valid header name`,
		`{"url":"http://a","headers":{"A":"x\r\nB: y"}}`:                         "the value of the header A contains a control character",
		`{"url":"http://a","headers":{"a":"1","A":"2"}}`:                         "the header A is set twice",
		`{"url":"http://a","headers":{"host":"b"}}`:                              "the header Host cannot be set",
		`{"url":"http://a","headers":{"webhook-id":"b"}}`:                        "the header Webhook-Id cannot be set",
		`{"url":"http://a","headers":{"A":["x"]}}`:                               "invalid payload for type http",
		`{"url":"http://a","headers":{"A":"` + long + long + long + long + `"}}`: "the headers have 36001 bytes, the limit is 32768",
		`{"url":"http://a","body":1,"body_base64":"AA=="}`:                       "give body or body_base64, not both",
		`{"url":"http://a","body_base64":"?"}`:                                   "cannot decode body_base64",
		`{"url":"http://a","timeout":"-1s"}`:                                     `the timeout "-1s" is not a positive duration like 10s`,
		`{"url":"http://a","timeout":"0s"}`:                                      `the timeout "0s" is not`,
		`{"url":"http://a","timeout":"soon"}`:                                    `the timeout "soon" is not`,
		`{"url":"http://a","timeout":5}`:                                         "invalid payload for type http",
		`{"url":"http://a","timeout":"1h"}`:                                      "the timeout 1h0m0s exceeds the limit of 30s",
		`{"url":"http://a","secret_ref":"other"}`:                                `there is no webhook secret named "other"`,
		`{"url":"https://example.com:8443","secret_ref":"billing"}`:              `the webhook secret "billing" may not sign requests to example.com:8443, which is not one of its hosts`,
		`{"url":"http://example.com","secret_ref":"billing"}`:                    `may not sign requests to example.com:80`,
		`{"url":"https://evil.example/?x=example.com","secret_ref":"billing"}`:   `may not sign requests to evil.example:443`,
		`{"url":"https://example.com.evil.example","secret_ref":"billing"}`:      `may not sign requests to example.com.evil.example:443`,
		`{"url":"http://127.0.0.1/"}`:                                            "the address 127.0.0.1 is not on the public internet and not in an allowed network",
		`{"url":"http://[fe80::1%25eth0]/"}`:                                     "the host of the url contains a zone or an escape",
		`{"url":"http://2130706433/"}`:                                           `the host "2130706433" is neither a name nor an address in standard form`,
	} {
		err := h.Validate([]byte(payload))
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.100s\n got %v\nwant %s", payload, err, want)
		}
	}
	for _, payload := range []string{
		`{"url":"https://example.com/x?token=1","secret_ref":"billing","timeout":"30s"}`,
		`{"url":"https://EU.Example.com:8443/","secret_ref":"billing"}`,
		`{"url":"http://1.1.1.1.example.com:8080/"}`, `{"url":"http://93.184.215.14"}`, `{"url":"http://[2606:4700::1111]:443/"}`,
		`{"url":"http://` + long[:245] + `.example/"}`,
		`{"url":"http://xn--bcher-kva.example/"}`, `{"url":"http://localhost/"}`, `{"url":"http://[2606:4700::]:443"}`,
	} {
		if err := h.Validate([]byte(payload)); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
	if err := testHandler(t, Options{}).Validate([]byte(`{"url":"http://a","secret_ref":"other"}`)); err != nil {
		t.Errorf("without secrets: %v", err)
	}
}

// Pauses and limits apply to one spelling of a host. So the handler refuses all other spellings, and makes no request.
func TestOtherSpellingsOfAHostAreRefused(t *testing.T) {
	t.Parallel()
	h := testHandler(t, Options{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("127.0.0.0/8")}})
	for url, want := range map[string]string{
		"http://[0:0:0:0:0:0:0:1]:1/":     `write the host of the url as [::1], not as "0:0:0:0:0:0:0:1"`,
		"http://[0000::1]:1/":             `as [::1], not as "0000::1"`,
		"http://[::ffff:127.0.0.1]:1/":    `as 127.0.0.1, not as "::ffff:127.0.0.1"`,
		"http://127.0.0.1.:1/":            `as 127.0.0.1, not as "127.0.0.1."`,
		"https://example.com./":           `as example.com, not as "example.com."`,
		"https://Bücher.example/x":        `as xn--bcher-kva.example, not as "Bücher.example"`,
		"https://bu\u0308cher.example:1/": `as xn--bcher-kva.example, not as`,
		"https://ｅｘａｍｐｌｅ.com":             `as example.com, not as "ｅｘａｍｐｌｅ.com"`,
		"https://example。com/":            `as example.com, not as`,
		"https://exam\u00adple.com/":      `as example.com, not as`,
		"http://１２７.0.0.1:1/":             "is neither a name nor an address in standard form",
		"http://127.0.0.１:1/":             `as 127.0.0.1, not as "127.0.0.１"`,
		"http://127.1:1/":                 "is neither a name nor an address in standard form",
		"http://example.com..:1/":         "is neither a name nor an address in standard form",
		"http://a\u0000b":                 "cannot parse the url",
		"http://\uFFFD.example":           "is neither a name nor an address in standard form",
	} {
		payload, err := json.Marshal(Payload{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Validate(payload); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", url, err, want)
		}
		err = h.Handle(t.Context(), task(string(payload)))
		if event, _ := verdict(t, err); event != holdfast.EventGiveUp || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the attempt ends with %s: %v", url, event, err)
		}
	}
}

func TestURLsAreEscapedAsBrowsersDo(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://a":                                    "/",
		"http://a?b c":                                "/?b%20c",
		"http://a/b c?d e=f g":                        "/b%20c?d%20e=f%20g",
		`http://a/"'<>?"'<>`:                          "/%22'%3C%3E?%22%27%3C%3E",
		"http://a/ü/日本?ü=日本":                          "/%C3%BC/%E6%97%A5%E6%9C%AC?%C3%BC=%E6%97%A5%E6%9C%AC",
		"http://a/😀\u0085\u00a0?😀":                    "/%F0%9F%98%80%C2%85%C2%A0?%F0%9F%98%80",
		"http://a/{b}^`|?{b}^`|\\":                    "/%7Bb%7D%5E%60%7C?{b}^`|\\",
		`http://a/b\c`:                                "/b/c",
		"http://a/%2F%41%c3?%2F%41%c3":                "/%2F%41%c3?%2F%41%c3",
		"http://a/%2F ü":                              "/%2F%20%C3%BC", // the escapes in the text stay
		"http://a/?q=100%&r=%zz":                      "/?q=100%&r=%zz",
		"http://a/-._~!$&'()*+,;=:@[]?-._~!$&()*+,;=": "/-._~!$&'()*+,;=:@[]?-._~!$&()*+,;=",
		"http://a//b//?//:@[]/?":                      "//b//?//:@[]/?",
		"http://a/b?":                                 "/b?",
		"http://a/b?c#d ü":                            "/b?c",
		"http://a/b#?c":                               "/b",
		"http://a#/b":                                 "/",
	} {
		payload, err := json.Marshal(Payload{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		p, err := parse(payload)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		req, err := p.build(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := req.URL.RequestURI(); got != want {
			t.Errorf("%s: the request is for %s, want %s", url, got, want)
		}
	}
	for _, url := range []string{" http://a", "http://a/b ", "http://a/ ", "http://a/%", "http://a/%zz", "http://a/\n", "http://a\\b", "http://a b/"} {
		payload, err := json.Marshal(Payload{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(payload); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"Timeout -1s":                            {Timeout: -time.Second},
		"MaxRetryAfter -1s":                      {MaxRetryAfter: -time.Second},
		"MaxResponse 65537 is not":               {MaxResponse: 65537},
		`"6xx" is not a status`:                  {RetryStatuses: []string{"6xx"}},
		`"abc" is not a status`:                  {RetryStatuses: []string{"abc"}},
		`"-99" is not a status`:                  {RetryStatuses: []string{"-99"}},
		`"5000" is not a status`:                 {RetryStatuses: []string{"5000"}},
		`a key of the secret "a" is not`:         {Secrets: map[string]Secret{"a": {[]string{"whsec_AAAA"}, []string{"a.example"}}}},
		`the secret "b" has no name or no hosts`: {Secrets: map[string]Secret{"b": {Keys: []string{keyA}}}},
		`the host "https://c.example" of the secret "c" is not a host like`: {Secrets: map[string]Secret{"c": {[]string{keyA}, []string{"https://c.example"}}}},
		"invalid Prefix is not a network":                                   {AllowCIDRs: []netip.Prefix{{}}},
	} {
		_, err := New(o)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// equivalent compares bodies. It compares JSON by value, because json.Marshal escapes some characters for HTML.
func equivalent(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil {
		return reflect.DeepEqual(x, y)
	}
	return bytes.Equal(a, b)
}

// FuzzPayload checks that every valid payload can be sent, and that errors are short, printable and on one line.
func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"url":"http://a/b?c=d","method":"put","headers":{"A":"b"},"body":{"x":[1,2]},"timeout":"5s"}`))
	f.Add([]byte(`{"url":"http://0x7f.1/","body_base64":"AA=="}`))
	f.Add([]byte(`{"url":"http://[::ffff:127.0.0.1]:1/","body":"\ud800"}`))
	h := testHandler(f, Options{})
	f.Fuzz(func(t *testing.T, payload []byte) {
		err := h.Validate(payload)
		if err != nil {
			if text := err.Error(); !errors.Is(err, holdfast.ErrInvalid) || len(text) > 1000 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\n\x1b") {
				t.Fatalf("%d bytes: %.2000q", len(text), text)
			}
			return
		}
		p, err := parse(payload)
		if err != nil {
			t.Fatalf("validated, but parse failed: %v", err)
		}
		req, err := p.build(t.Context())
		if err != nil {
			t.Fatalf("validated, but build failed: %v", err)
		}
		if req.URL.User != nil || req.URL.Host == "" {
			t.Fatalf("request for %s", req.URL)
		}
		if p.content == "application/json" && !json.Valid(p.body) {
			t.Fatalf("the body %q is not JSON", p.body)
		}
		// Marshaling and parsing the payload results in the same request.
		written, err := json.Marshal(p.Payload)
		if err != nil {
			t.Fatal(err)
		}
		reparsed, err := parse(written)
		if err != nil || reparsed.url.String() != p.url.String() || reparsed.Method != p.Method || reparsed.timeout != p.timeout ||
			reparsed.content != p.content || !equivalent(reparsed.body, p.body) {
			t.Fatalf("%s is %+v, %v; want %+v", written, reparsed, err, p)
		}
		// The handler sends one request, without a reserved header from the payload.
		var sent bytes.Buffer
		if err := req.Write(&sent); err != nil {
			t.Fatalf("write request: %v", err)
		}
		received, err := http.ReadRequest(bufio.NewReader(&sent))
		if err != nil || received.Method != p.Method || received.Header.Get("Webhook-Id") != "" {
			t.Fatalf("sent %+v, %v", received, err)
		}
	})
}
