package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const attempts = 6

// Problem is what a broker answered instead of doing it (RFC 9457).
type Problem struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Retriable bool   `json:"retriable"`
	wait      time.Duration
}

func (p *Problem) Error() string { return fmt.Sprintf("HTTP %d %s: %s", p.Status, p.Code, p.Detail) }

// Broker asks one broker; it passes on what belongs to others.
type Broker struct {
	URL      string
	Protocol string // of the last answer
	client   *http.Client
}

// NewBroker speaks HTTP/2 only: with prior knowledge for http URLs, by ALPN for https ones. One connection is enough.
func NewBroker(url string) *Broker {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	protocols.SetHTTP2(true)
	return &Broker{URL: url, client: &http.Client{Transport: &http.Transport{Protocols: protocols}}}
}

// Open returns the answer once it is a good one; the caller closes its body. It tries again after problems that may
// pass and lost connections: a write whose answer was lost may be written twice.
func (b *Broker) Open(ctx context.Context, method, path, mediaType string, body []byte) (*http.Response, error) {
	for failures := 1; ; failures++ {
		response, err := b.try(ctx, method, path, mediaType, body)
		var problem *Problem
		if err == nil || failures == attempts || errors.As(err, &problem) && !problem.Retriable {
			return response, err
		}
		pause := 100 * time.Millisecond << failures
		if problem != nil {
			pause = max(pause, problem.wait)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *Broker) try(ctx context.Context, method, path, mediaType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, b.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", mediaType)
	} else {
		request.Header.Set("Accept", mediaType)
	}
	response, err := b.client.Do(request)
	if err != nil {
		return nil, err
	}
	b.Protocol = response.Proto
	if response.StatusCode < 400 {
		return response, nil
	}
	defer response.Body.Close()
	problem := &Problem{Status: response.StatusCode}
	if err := json.NewDecoder(response.Body).Decode(problem); err != nil {
		return nil, fmt.Errorf("HTTP %s without a problem document: %w", response.Status, err)
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	problem.wait = time.Duration(seconds) * time.Second
	return nil, problem
}

// Read returns the whole body of a GET, and where the next one goes on.
func (b *Broker) Read(ctx context.Context, path, mediaType string) (body []byte, nextOffset int64, err error) {
	response, err := b.Open(ctx, http.MethodGet, path, mediaType, nil)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		return nil, 0, err
	}
	nextOffset, err = strconv.ParseInt(response.Header.Get("Headrace-Next-Offset"), 10, 64)
	return body, nextOffset, err
}
