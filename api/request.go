package api

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast/internal/requestbody"
	"github.com/holdfastq/holdfast/surface"
)

// requestBody describes the body that a route takes.
type requestBody struct {
	schema   func(huma.Registry) *huma.Schema
	types    []string // the content types in addition to application/json
	optional bool     // the body may be missing
}

// bodyOf describes a required body with the members of T.
func bodyOf[T any]() *requestBody {
	return &requestBody{schema: func(r huma.Registry) *huma.Schema { return r.Schema(typeOf[T](), true, typeOf[T]().Name()) }}
}

// reasonBody is the optional body of routes whose only data is a reason.
type reasonBody struct {
	Reason string `json:"reason,omitempty" doc:"Why, for the audit log. The parameter reason has the same effect."`
}

// justReason describes an optional reasonBody. The guard of the route reads the body; see readReason.
func justReason() *requestBody {
	body := bodyOf[reasonBody]()
	body.optional = true
	return body
}

const (
	jsonType      = "application/json"
	jsonPatchType = "application/json-patch+json" // of RFC 6902
)

// jsonPatch describes a body that is a JSON Patch.
func jsonPatch() *requestBody {
	body := &requestBody{types: []string{jsonPatchType}}
	body.schema = func(r huma.Registry) *huma.Schema { return huma.SchemaFromType(r, typeOf[[]surface.PatchStep]()) }
	return body
}

// document returns the description of the body in the OpenAPI document.
func (b *requestBody) document(r huma.Registry) huma.RequestBody {
	schema := b.schema(r)
	described := huma.RequestBody{Required: !b.optional, Content: map[string]*huma.MediaType{jsonType: {Schema: schema}}}
	for _, kind := range b.types {
		described.Content[kind] = &huma.MediaType{Schema: schema}
	}
	return described
}

// response describes a response in the document.
func response(text, contentType string, schema *huma.Schema) *huma.Response {
	return &huma.Response{Description: text, Content: map[string]*huma.MediaType{contentType: {Schema: schema}}}
}

// checkURL refuses a path or a query that the library would misread: a bad percent encoding, a repeated parameter,
// invalid UTF-8 or a null character. It rewrites the query to a form that the library reads completely.
func checkURL(r *http.Request) *Problem {
	if !isText(r.URL.Path) {
		return badURL("", "the path is not valid UTF-8, or has a null character")
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badURL("", "the query cannot be read: "+err.Error())
	}
	for name, all := range values {
		switch {
		case !isText(name) || !isText(all[0]):
			return badURL(strings.ToValidUTF8(name, "\ufffd"), "the value is not valid UTF-8, or has a null character")
		case len(all) > 1:
			return badURL(name, "the parameter is given more than once")
		}
	}
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, err := url.QueryUnescape(part); err == nil && part != "" && !strings.Contains(part, "=") {
			values.Set(name, "true") // such as ?all
		}
	}
	r.URL.RawQuery = values.Encode()
	return nil
}

func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

func badURL(parameter, detail string) *Problem {
	if parameter != "" {
		detail = parameter + ": " + detail
	}
	p := newProblem(http.StatusBadRequest, "invalid_parameter", "%s", detail)
	p.Parameter = parameter
	p.Hint = "percent-encode each value, such as 50%25 for 50%; curl does it with: --get --data-urlencode 'q=error:50%'"
	return p
}

// readBody reads a request body, and checks its size, its type and whether the route takes a body. The request has no
// slot yet, so a slow client does not keep one. readBody returns nil for an empty body.
func (a *API) readBody(route route, r *http.Request) ([]byte, *Problem) {
	if r.ContentLength > a.maxBody {
		return nil, tooLarge(a.maxBody)
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, a.maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, newProblem(http.StatusRequestTimeout, "too_slow", "the body is not complete, and nothing arrived for %s", requestbody.Pause).
			hint("send all bytes that the header Content-Length announces, and without long pauses")
	case err != nil:
		return nil, newProblem(http.StatusBadRequest, invalidBody, "the body did not arrive: %s", err)
	case int64(len(text)) > a.maxBody:
		return nil, tooLarge(a.maxBody)
	case len(text) == 0:
		return nil, nil
	case route.body == nil:
		return nil, newProblem(http.StatusBadRequest, invalidBody, "%s %s takes no body", route.method, Prefix+route.path).
			hint("send parameters in the query; GET " + Prefix + "/openapi.json describes all routes")
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if kind = strings.ToLower(strings.TrimSpace(kind)); kind != jsonType && kind != jsonPatchType {
		return nil, newProblem(http.StatusUnsupportedMediaType, "not_json", "the body has the type %q, not application/json", kind).
			hint("send the header Content-Type: application/json")
	}
	return text, nil
}

// readReason moves the reason in an optional body to the parameter reason, which the handler reads.
func readReason(text []byte, r *http.Request) *Problem {
	var body reasonBody
	if err := decode(text, &body); err != nil {
		return err
	}
	query := r.URL.Query()
	if body.Reason != "" && query.Has("reason") {
		return newProblem(http.StatusBadRequest, invalidBody, "the reason is given in the query and in the body; send it once")
	}
	if body.Reason != "" {
		query.Set("reason", body.Reason)
		r.URL.RawQuery = query.Encode()
	}
	return nil
}

func tooLarge(limit int64) *Problem {
	return newProblem(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", limit).
		hint("store large data elsewhere and send a reference, split the tasks into several requests, or raise producer.max_payload")
}

// invalidBody is the code of the problem that a request body is invalid.
const invalidBody = "invalid_body"

// decode reads a JSON object strictly; see surface.ReadObject.
func decode(text []byte, into any) *Problem {
	if err := surface.ReadObject(text, "the body", into); err != nil {
		return newProblem(http.StatusBadRequest, invalidBody, "%s", err).
			hint("GET " + Prefix + "/openapi.json describes the body")
	}
	return nil
}
