package surface

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// TopicQuery is a request for a page of the parts of topics. The store counts the tasks of each part, so a page is
// small.
type TopicQuery struct {
	Queue string `query:"queue" flag:"NAME" doc:"Only topics with open tasks in this queue."`
	Limit int    `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" most:"1000" doc:"At most so many items."`
	After string `query:"after" flag:"CURSOR" doc:"The value next of the page before."`
}

// Check returns an error if the request is invalid.
func (r TopicQuery) Check() error {
	_, err := r.from()
	return err
}

// from returns the last part of the previous page, or the zero value for the first page.
func (r TopicQuery) from() (from store.TopicPart, err error) {
	if r.After != "" {
		if from, err = parseTopicCursor(r.After); err != nil {
			return from, &MemberError{"after", err}
		}
	}
	return from, nil
}

// TopicPage is a page of the parts of topics.
type TopicPage struct {
	Topics []store.TopicUse `json:"topics"`
	// Next is the cursor of the next page, and null on the last page.
	Next *string `json:"next"`
}

// Topics reads a page of the parts of topics. It returns an ErrInvalid if the cursor is invalid.
func Topics(ctx context.Context, b *app.Backend, r TopicQuery) (TopicPage, error) {
	from, err := r.from()
	if err != nil {
		return TopicPage{}, err
	}
	found, err := b.Store.ListTopics(ctx, r.Queue, from, r.Limit+1)
	topics, next := pageOf(found, r.Limit, func(u store.TopicUse) string { return topicCursor(u.TopicPart) })
	return TopicPage{topics, next}, err
}

// topicCursor returns the cursor of a part of a topic: its subqueue, a slash and the topic. A subqueue never contains a
// slash.
func topicCursor(p store.TopicPart) string {
	return holdfast.Subqueue(p.Queue, p.Priority) + "/" + p.Topic
}

// parseTopicCursor is the inverse of topicCursor.
func parseTopicCursor(text string) (store.TopicPart, error) {
	subqueue, topic, found := strings.Cut(text, "/")
	p := store.TopicPart{Topic: topic}
	p.Queue, p.Priority = holdfast.SplitSubqueue(subqueue)
	if !found || p.Queue == "" || strings.Contains(p.Queue, ".") || holdfast.CheckTopic(topic) != nil {
		return p, fmt.Errorf("%w: %.120q is not the cursor of a page of topics", holdfast.ErrInvalid, text)
	}
	return p, nil
}

// WeightQuery is a request for the topics whose weight is not 1.
type WeightQuery struct {
	Limit int `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" most:"10000" doc:"At most so many weights."`
}

// NewWeight is a request to set the weight of a topic.
type NewWeight struct {
	Topic  string `json:"topic" arg:"0"`
	Weight int    `json:"weight" flag:"N" required:"true" minimum:"1" maximum:"1000" most:"1000" doc:"The new weight; 1 is the weight of all topics without one."`
	Reason string `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log; at most 1000 characters."`
}

// Check returns an error if the request is invalid.
func (r NewWeight) Check() error { return holdfast.CheckTopic(r.Topic) }

// WeightChange is a change of the weight of a topic.
type WeightChange struct {
	store.TopicWeight
	Before int `json:"before" doc:"The weight before the change."`
}

// SetTopicWeight changes the weight of a topic; see store.Topics.
func SetTopicWeight(ctx context.Context, b *app.Backend, by store.Actor, r NewWeight) (WeightChange, error) {
	by.Reason = r.Reason
	before, err := b.Store.SetTopicWeight(ctx, by, r.Topic, r.Weight)
	return WeightChange{TopicWeight: store.TopicWeight{Topic: r.Topic, Weight: r.Weight}, Before: before}, err
}
